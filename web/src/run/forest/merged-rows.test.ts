import { expect, test } from 'vitest'
import { forestOf, nested, plan, step, thinkAct, toolCall } from './example-tree'
import { mergeRows } from './merged-rows'
import { ancestors, isRecord, type Forest } from './rows'

function outline(forest: Forest): string[] {
  return forest.all.map((row) => '  '.repeat(ancestors(row).length) + row.key)
}

function agent(planId: string, fields: Parameters<typeof plan>[1] = {}) {
  return plan(planId, { agentName: planId, ...fields })
}

test('a plan with one step of its agent is one row, and a call carries its sub-agent', () => {
  const records = forestOf(nested())
  const opener = records.byKey.get('opener')!
  const forest = mergeRows(records)

  expect(outline(records)).toHaveLength(8)
  // The steps of this run name other agents than its plans.
  expect(outline(forest)).toEqual([
    'root',
    '  step',
    '    round',
    '      other',
    '      opener',
    '        sub-step',
    '          inner',
  ])
  expect(forest.byKey.get('sub')).toBe(forest.byKey.get('opener'))
  expect(records.byKey.get('opener')).toBe(opener)
  expect(isRecord(opener) && opener.carried).toEqual([])
})

test('fifteen agents that open each other make two rows each', () => {
  let below: ReturnType<typeof plan> | null = null
  for (let level = 14; level >= 0; level -= 1) {
    const calls = below ? [toolCall(`call ${level}`, { subPlans: [below] })] : []
    const round = thinkAct(`round ${level}`, { toolCalls: calls })
    const one = step(`step ${level}`, { agentName: `a${level}`, thinkActs: [round] })
    below = agent(level === 0 ? 'root' : `plan ${level}`, {
      agentName: `a${level}`,
      agentExecutions: [one],
    })
  }
  const records = forestOf(below!)

  expect(records.all).toHaveLength(59)
  const forest = mergeRows(records)
  expect(forest.all).toHaveLength(30)
  for (const row of records.all) expect(forest.byKey.has(row.key)).toBe(true)
})

test('a call with several sub-agents keeps a row for each', () => {
  const call = toolCall('call', { subPlans: [agent('one'), agent('two')] })
  const forest = mergeRows(
    forestOf(
      agent('root', { agentExecutions: [step('s', { agentName: 'root', toolCalls: [call] })] }),
    ),
  )

  expect(outline(forest)).toEqual(['root', '  call', '    one', '    two'])
})

test('a part of a piece of work keeps a row of its own below its call', () => {
  const continues = {
    ...{ rootPlanId: 'root', inferredFrom: null },
    ...{ isInside: false, isByOtherProcess: false },
  }
  const call = toolCall('call', { subPlans: [plan('part', { toolCallId: 'call', continues })] })
  const forest = mergeRows(forestOf(plan('root', { unplaced: [call] })))
  expect(forest.byKey.get('part')).not.toBe(forest.byKey.get('call'))
})
