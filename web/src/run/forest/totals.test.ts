import { expect, test } from 'vitest'
import { forestOf, plan, step, thinkAct } from './example-tree'
import { NO_TOTALS, totalsOf, totalsOfRun } from './totals'

/** The costs of a round without calls. */
function costsOf(fields: Parameters<typeof thinkAct>[1]) {
  const { costUsd, unpricedCalls } = totalsOf({
    record: thinkAct('round', fields),
    children: [],
  }).own
  return [costUsd, unpricedCalls]
}

test('a model call without a cost is unpriced if it succeeded or used tokens', () => {
  const unused = { costUsd: null, inputTokens: null, outputTokens: null }

  expect(costsOf({ ...unused, costUsd: 0 })).toEqual([0, 0])
  expect(costsOf(unused)).toEqual([null, 1])
  expect(costsOf({ ...unused, status: 'failed' })).toEqual([0, 0])
  expect(costsOf({ ...unused, status: 'failed', inputTokens: 7 })).toEqual([null, 1])
  expect(costsOf({ ...unused, status: 'running' })).toEqual([0, 0])
})

test('known costs are summed, and unpriced calls counted', () => {
  const child = (costUsd: number | null, unpricedCalls: number) => {
    const totals = { ...NO_TOTALS, costUsd, unpricedCalls }
    return { kind: 'toolCall', own: totals, cumulative: totals }
  }
  const summed = (...children: ReturnType<typeof child>[]) => {
    const record = thinkAct('round', { costUsd: 0.25 })
    const { costUsd, unpricedCalls } = totalsOf({ record, children }).cumulative
    return [costUsd, unpricedCalls]
  }

  expect(summed(child(0, 0))).toEqual([0.25, 0])
  expect(summed(child(null, 2), child(0.5, 1))).toEqual([0.75, 3])
})

test('the totals of a run include folded parts and records without a parent', () => {
  const folded = { ...NO_TOTALS, inputTokens: 5, costUsd: 0.5, toolCalls: 3 }
  const agent = step('step', { subPlans: [plan('part', { openedByStepId: 'step', folded })] })
  const loose = thinkAct('round', { inputTokens: 7, outputTokens: 0, costUsd: 0.25 })
  const { tops } = forestOf(plan('root', { agentExecutions: [agent], unplaced: [loose] }))

  const { inputTokens, costUsd, toolCalls } = totalsOfRun(tops)

  expect([inputTokens, costUsd, toolCalls]).toEqual([12, 0.75, 3])
})
