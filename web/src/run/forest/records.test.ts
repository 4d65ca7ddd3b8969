import { expect, test } from 'vitest'
import type { RunChanges, TreeNode } from '../../api/shapes'
import { nested, plan, step, thinkAct, toolCall, withParents } from './example-tree'
import { applyChanges, keyOf, readRecords, type Records } from './records'
import { buildForest } from './build-forest'
import { ancestors, isRecord, type Forest } from './rows'

function outline(forest: Forest): string[] {
  return forest.all.map((row) => '  '.repeat(ancestors(row).length) + row.key)
}

function changes(changed: TreeNode[], removed: RunChanges['removed'] = []): RunChanges {
  return { changed, removed } as RunChanges
}

function shuffled(records: Records): Records {
  return new Map([...records].sort(([one], [other]) => (one > other ? -1 : 1)))
}

test('the forest does not depend on the order in which records arrived', () => {
  const records = readRecords(withParents(nested()))

  expect(outline(buildForest(shuffled(records), 'root'))).toEqual(
    outline(buildForest(records, 'root')),
  )
})

test('a record waits under a heading until its parent arrives', () => {
  const records = readRecords(plan('root'))
  applyChanges(records, changes([toolCall('call', { stepId: 's' })]))
  expect(outline(buildForest(records, 'root'))).toEqual(['root', 'unplaced', '  call'])

  applyChanges(records, changes([step('s', { planId: 'root' })]))
  expect(outline(buildForest(records, 'root'))).toEqual(['root', '  s', '    call'])
})

test('a record that a message removes is gone, and what was below it waits', () => {
  const records = readRecords(withParents(nested()))
  applyChanges(records, changes([], [{ kind: 'toolCall', id: 'opener' }] as RunChanges['removed']))

  expect(outline(buildForest(records, 'root'))).toEqual([
    'root',
    '  step',
    '    round',
    '      other',
    'unplaced',
    '  sub',
    '    sub-step',
    '      inner',
  ])
})

test('a part that continues the work of a call follows the agent that the call opened', () => {
  const continues = {
    ...{ rootPlanId: 'root', inferredFrom: null },
    ...{ isInside: false, isByOtherProcess: false },
  }
  const records = readRecords(plan('root'))
  applyChanges(
    records,
    changes([
      step('step', { planId: 'root' }),
      toolCall('call', { stepId: 'step' }),
      plan('part', { toolCallId: 'call', position: 0, continues }),
      plan('sub', { toolCallId: 'call' }),
    ]),
  )

  expect(outline(buildForest(records, 'root')).slice(-2)).toEqual(['      sub', '      part'])
})

test('records that name each other as parents are cut once, whatever arrived first', () => {
  const one = toolCall('one', { parentToolCallId: 'two' })
  const two = toolCall('two', { parentToolCallId: 'one' })
  const records = readRecords(plan('root'))
  applyChanges(records, changes([two, one]))
  const expected = outline(buildForest(records, 'root'))

  expect(expected).toHaveLength(4)
  expect(outline(buildForest(shuffled(records), 'root'))).toEqual(expected)
})

test('totals leave out sub-agents, and then include them', () => {
  const round = thinkAct('inner round', { stepId: 'sub-step', inputTokens: 7, outputTokens: 3 })
  const records = readRecords(withParents(nested()))
  records.set(keyOf(round), round)
  const forest = buildForest(records, 'root')
  const root = forest.byKey.get('root')!

  expect([root.own.inputTokens, root.own.toolCalls]).toEqual([120, 2])
  expect([root.cumulative.inputTokens, root.cumulative.toolCalls]).toEqual([127, 3])
  expect(isRecord(root) && root.carried).toEqual([])
})
