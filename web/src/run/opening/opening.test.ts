import { expect, test } from 'vitest'
import { forestOf, nested, plan, step, toolCall } from '../forest/example-tree'
import { EMPTY_FOREST, visibleRows } from '../forest/rows'
import {
  closedAbove,
  deepestPlan,
  except,
  NO_EXCEPTIONS,
  NOTHING_FIT,
  openByRule,
  openRows,
  openWhatFits,
  type OpeningRule,
} from './opening'

test('as many levels are open at first as fit the screen', () => {
  const forest = forestOf(nested())
  const keysAt = (capacity: number) =>
    visibleRows(forest.tops, openWhatFits(forest, NOTHING_FIT, capacity).expanded).map(
      (row) => row.key,
    )

  expect(keysAt(5)).toEqual(['root', 'step', 'round', 'other', 'opener'])
  expect(keysAt(6)).toEqual(['root', 'step', 'round', 'other', 'opener', 'sub'])
  expect(keysAt(50)).toHaveLength(8)
})

test('a row with none beside it is open even where what it holds does not fit', () => {
  const calls = Array.from({ length: 500 }, (_, number) => toolCall(`call-${number}`))
  const forest = forestOf(plan('root', { agentExecutions: [step('step', { toolCalls: calls })] }))
  const two = forestOf(
    plan('root', { agentExecutions: [step('step', { toolCalls: calls }), step('other')] }),
  )

  expect(openWhatFits(forest, NOTHING_FIT, 20).expanded.has('step')).toBe(true)
  expect(openWhatFits(two, NOTHING_FIT, 20).expanded.has('step')).toBe(false)
})

test('what the reader closed stays closed while the tree grows', () => {
  const before = openWhatFits(forestOf(nested()), NOTHING_FIT, 50)
  const exceptions = except(NO_EXCEPTIONS, before.expanded, ['round'], false)

  const after = openWhatFits(forestOf(nested([toolCall('stray')])), before, 50)
  const open = openRows(after.expanded, exceptions)

  expect(open.has('round')).toBe(false)
  expect(open.has('unplaced')).toBe(true)
})

test('a row that is put back is no exception any more', () => {
  const byRule = new Set(['a'])
  const closed = except(NO_EXCEPTIONS, byRule, ['a'], false)
  const opened = except(closed, byRule, ['b'], true)

  expect(opened).toEqual({ opened: new Set(['b']), closed: new Set(['a']) })
  expect(except(except(opened, byRule, ['a'], true), byRule, ['b'], false)).toEqual(NO_EXCEPTIONS)
})

test.each<[OpeningRule, string[]]>([
  ['steps', ['root', 'step']],
  ['rounds', ['root', 'step', 'round']],
  ['calls', ['root', 'step', 'round', 'other', 'opener']],
  ['subPlans', ['root', 'step', 'round', 'other', 'opener', 'sub']],
  [1, ['root', 'step', 'round', 'other', 'opener', 'sub']],
  [2, ['root', 'step', 'round', 'other', 'opener', 'sub', 'sub-step', 'inner']],
  ['all', ['root', 'step', 'round', 'other', 'opener', 'sub', 'sub-step', 'inner']],
])('the rule %s opens down to what it names', (rule, keys) => {
  const forest = forestOf(nested())
  const open = openByRule(forest, rule, NOTHING_FIT)

  expect(visibleRows(forest.tops, open).map((row) => row.key)).toEqual(keys)
})

test('what leads to no sub-plan stays closed where only that is asked for', () => {
  const busy = step('busy', { toolCalls: [toolCall('alone')] })
  const tree = nested()
  const forest = forestOf({ ...tree, agentExecutions: [busy, ...tree.agentExecutions] })
  const shown = (rule: OpeningRule) =>
    visibleRows(forest.tops, openByRule(forest, rule, NOTHING_FIT)).map((row) => row.key)

  expect(shown('subPlans')).not.toContain('alone')
  expect(shown(1)).toContain('alone')
  expect(shown('subPlans')).toContain('sub')
})

test('a plan that was handed over counts as one deeper, and so does what hangs nowhere', () => {
  const handed = plan('handed', { agentExecutions: [step('inside')] })
  const forest = forestOf(
    plan('root', {
      agentExecutions: [step('step', { subPlans: [handed] })],
      unplaced: [plan('stray', { agentExecutions: [step('lost')] })],
    }),
  )
  const open = openByRule(forest, 1, NOTHING_FIT)

  expect(deepestPlan(forest)).toBe(2)
  expect(deepestPlan(EMPTY_FOREST)).toBe(0)
  expect([...open].sort()).toEqual(['root', 'step', 'stray', 'unplaced'])
})

test('a row that gets its first children opens while there is room', () => {
  const empty = forestOf(plan('root', { agentExecutions: [step('step')] }))
  const before = openWhatFits(empty, NOTHING_FIT, 50)
  const grown = forestOf(nested())

  expect(openWhatFits(grown, before, 50).expanded.has('opener')).toBe(true)
})

test('nothing changes where nothing is new', () => {
  const forest = forestOf(nested())
  const opening = openWhatFits(forest, NOTHING_FIT, 50)

  expect(openWhatFits(forest, opening, 50)).toBe(opening)
})

test('everything above a row opens so that it can be seen', () => {
  const forest = forestOf(nested())
  const above = closedAbove(forest.byKey.get('inner')!, new Set(['root']))

  expect(above).toEqual(['sub-step', 'sub', 'opener', 'round', 'step'])
  expect(visibleRows(forest.tops, new Set(['root', ...above])).at(-1)?.key).toBe('inner')
})
