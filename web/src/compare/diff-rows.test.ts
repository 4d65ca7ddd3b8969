import { expect, test } from 'vitest'
import type { ComparedRecord, RecordPair } from '../api/shapes'
import { countsOf } from './diff-counts'
import {
  agentOf,
  buildDiffRows,
  closedAbove,
  differingRows,
  isHandled,
  MEASURES,
  nameOf,
  neighbour,
  planIdOf,
  roundBefore,
  valuesOf,
  visibleDiffRows,
} from './diff-rows'

const NONE = new Set<string>()

function side(id: string, durationMs: number | null = 10): ComparedRecord {
  const totals = { inputTokens: 0, outputTokens: 0, costUsd: 0, unpricedCalls: 0 }
  return { id, name: id, calls: [] as string[], durationMs, totals } as ComparedRecord
}

function pair(
  id: string,
  change: RecordPair['change'] = 'same',
  children: RecordPair[] = [],
  kind: RecordPair['kind'] = 'toolCall',
): RecordPair {
  const changedBelow = children.reduce(
    (sum, each) => sum + each.changedBelow + (each.change === 'same' ? 0 : 1),
    0,
  )
  return {
    kind,
    name: id,
    left: change === 'added' ? null : side(id),
    right: change === 'removed' ? null : side(`${id}'`),
    change,
    differs: change === 'changed' ? ['outcome'] : [],
    changedBelow,
    children,
  } as RecordPair
}

const ROOT = pair(
  'root',
  'same',
  [
    pair('quiet', 'same', [pair('still')]),
    pair('step', 'same', [pair('call', 'changed'), pair('twin')], 'step'),
    pair('gone', 'removed', [pair('below gone', 'removed')]),
  ],
  'plan',
)

function keys(onlyDifferences: boolean, turned: ReadonlySet<string> = NONE): string[] {
  const { top } = buildDiffRows(ROOT)
  return visibleDiffRows(top, turned, onlyDifferences).map((row) => row.key)
}

test('differences are expanded and equal records stay collapsed', () => {
  expect(keys(false)).toEqual(['root', 'quiet', 'step', 'call', 'twin', 'gone'])
})

test('a row that is turned over opens or closes', () => {
  expect(keys(false, new Set(['quiet', 'step']))).toEqual([
    'root',
    'quiet',
    'still',
    'step',
    'gone',
  ])
})

test('only differences are their rows with those above them', () => {
  expect(keys(true)).toEqual(['root', 'step', 'call', 'gone'])
})

test('runs without a difference are their root alone', () => {
  const { top } = buildDiffRows(pair('root', 'same', [pair('a')], 'plan'))

  expect(visibleDiffRows(top, NONE, true).map((row) => row.key)).toEqual(['root'])
  expect(differingRows(top)).toEqual([])
})

test('differences are walked from top to bottom, what is missing as a whole once', () => {
  const { top, byKey } = buildDiffRows(ROOT)

  expect(differingRows(top).map((row) => row.key)).toEqual(['call', 'gone'])
  expect(closedAbove(byKey.get('call')!, new Set(['step']))).toEqual(['step'])
  expect(planIdOf(byKey.get('step')!, 'right')).toBe("root'")
})

test('next and previous difference go around, from anywhere', () => {
  const { top, byKey } = buildDiffRows(ROOT)
  const wanted = differingRows(top)
  const from = (key: string, direction: 1 | -1) =>
    neighbour(top, wanted, byKey.get(key)!, direction)?.key

  expect([from('root', 1), from('call', 1), from('gone', 1)]).toEqual(['call', 'gone', 'call'])
  expect([from('root', -1), from('call', -1), from('twin', -1)]).toEqual(['gone', 'gone', 'call'])
  expect(neighbour(top, [], top, 1)).toBeNull()
})

test('one id of two kinds is two rows', () => {
  const { byKey } = buildDiffRows(pair('x', 'same', [pair('x')], 'plan'))

  expect([...byKey.keys()]).toEqual(['x', 'toolCall:x'])
})

test('a comparison may be nested deeply', () => {
  let root = pair('bottom', 'changed')
  for (let depth = 0; depth < 5_000; depth += 1)
    root = { ...pair(`${depth}`), children: [root], changedBelow: 1 }
  const { top } = buildDiffRows(root)

  expect(visibleDiffRows(top, NONE, true)).toHaveLength(5_001)
})

test('a round is called by what it said, else by the tools that it chose', () => {
  const said = pair('a', 'same', [], 'thinkAct')
  const chose = {
    ...said,
    left: { ...said.left!, name: null, calls: ['ask', 'ask', 'measure'] },
    right: null,
  }

  expect(nameOf({ ...said, left: { ...said.left!, name: 'It is\n calm.' } }, 'left')).toBe(
    'It is calm.',
  )
  expect([nameOf(chose, 'left'), nameOf(chose, 'right')]).toEqual(['→ ask, measure', ''])
})

test('the values of a pair are known if both records have them', () => {
  const { left, right, ...rest } = pair('a')
  const used = (inputTokens: number, costUsd: number) => ({
    ...left!.totals,
    inputTokens,
    costUsd,
  })
  const both = {
    ...rest,
    left: { ...left!, durationMs: 300, totals: used(10, 0.25) },
    right: { ...right!, durationMs: 100, totals: used(25, 0.5) },
  }

  expect(MEASURES.map((measure) => valuesOf(both, measure))).toEqual([
    [300, 100],
    [10, 25],
    [0.25, 0.5],
  ])
  expect(valuesOf(pair('b', 'added'), 'tokens')).toBeNull()
  expect(
    valuesOf(
      { ...both, right: { ...right!, totals: { ...used(9, 0.1), unpricedCalls: 1 } } },
      'cost',
    ),
  ).toBeNull()
})

test('the round before is the one of the same side', () => {
  const rounds = [
    pair('one', 'same', [], 'thinkAct'),
    pair('two', 'added', [], 'thinkAct'),
    pair('three', 'same', [], 'thinkAct'),
  ]
  const { byKey } = buildDiffRows(pair('step', 'same', rounds, 'step'))
  const before = (key: string, side: 'left' | 'right') => roundBefore(byKey.get(key)!, side)

  expect([before('three', 'left'), before('three', 'right')]).toEqual(['one', "two'"])
  expect(before('one', 'left')).toBeNull()
})

test('a call carries its only sub-agent and its only step, with their differences', () => {
  const call = pair('call', 'changed')
  const step = { ...pair('step', 'changed', [call], 'step'), differs: ['result' as const] }
  const plan = { ...pair('agent', 'same', [step], 'plan') }
  const { top, byKey } = buildDiffRows({ ...pair('ask', 'same', [plan]), changedBelow: 2 })

  expect(visibleDiffRows(top, NONE, false).map((row) => row.key)).toEqual(['ask', 'call'])
  expect([top.change, ...top.differs]).toEqual(['changed', 'result'])
  expect(agentOf(top)).toBe('step')
  expect(byKey.get('step')).toBe(top)
  expect(planIdOf(byKey.get('call')!, 'right')).toBe("agent'")
})

test('a row inherits if all of its records that differ do', () => {
  const inheriting = (each: RecordPair): RecordPair => ({ ...each, inherits: true })
  const call = pair('call', 'changed')
  const step = inheriting(pair('step', 'changed', [call], 'step'))
  const agent = inheriting(pair('agent', 'changed', [step], 'plan'))
  const ask = inheriting(pair('ask', 'changed', [agent]))
  const renamed = pair('ask', 'changed', [{ ...agent, inherits: false }])

  expect(buildDiffRows(ask).top.isInherited).toBe(true)
  expect(buildDiffRows(ask).byKey.get('call')!.isInherited).toBe(false)
  expect(buildDiffRows(renamed).top.isInherited).toBe(false)
  expect(buildDiffRows(pair('same')).top.isInherited).toBe(false)
})

test('a failure below a plan that succeeded is handled on that side', () => {
  const [call, root] = [pair('call'), pair('root', 'same', [], 'plan')]
  for (const record of [call.left, call.right, root.right]) record!.status = 'failed'
  root.left!.status = 'succeeded'
  root.children = [call]
  const row = buildDiffRows(root).byKey.get('call')!

  expect([isHandled(row, 'left'), isHandled(row, 'right')]).toEqual([true, false])
})

test('records whose content changed are counted apart from those that only took longer', () => {
  const [slower, parent] = [pair('slower', 'changed'), pair('parent', 'changed')]
  slower.differs = ['duration', 'cost']
  parent.inherits = true
  const root = pair('root', 'same', [slower, parent, pair('new', 'added'), pair('call', 'changed')])

  expect(countsOf(root)).toEqual({
    ...{ same: 1, changed: 1, measured: 1 },
    ...{ inherited: 1, added: 1, removed: 0 },
  })
})
