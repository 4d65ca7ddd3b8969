import { expect, test } from 'vitest'
import { forestOf, plan, step, thinkAct, toolCall } from '../forest/example-tree'
import { mergeRows } from '../forest/merged-rows'
import { currentCalls, newestCall } from './following'

const at = (second: number) => `2026-11-27T10:00:${String(second).padStart(2, '0')}.000Z`

test('the current calls run without a running record below them; the newest began last', () => {
  const call = (id: string, from: number, to: number | null) =>
    toolCall(id, {
      startedAt: at(from),
      finishedAt: to === null ? null : at(to),
      status: to === null ? 'running' : 'succeeded',
    })
  const opener = { ...call('opener', 0, null), subPlans: [plan('sub', { status: 'running' })] }
  const round = thinkAct('round', {
    startedAt: at(0),
    finishedAt: at(1),
    status: 'succeeded',
    toolCalls: [call('late', 2, null), call('slow', 1, null), call('done', 3, 4), opener],
  })
  const steps = [step('step', { thinkActs: [round] })]
  const forest = forestOf(plan('root', { status: 'running', agentExecutions: steps }))

  for (const each of [forest, mergeRows(forest)]) {
    expect(currentCalls(each).map(({ key }) => key)).toEqual(['slow', 'late'])
    expect(newestCall(each)?.key).toBe('done')
  }
  const empty = forestOf(plan('root'))
  expect(currentCalls(empty)).toEqual([])
  expect(newestCall(empty)).toBeNull()
})
