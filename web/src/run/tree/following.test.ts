import { expect, test } from 'vitest'
import { forestOf, plan, step, thinkAct, toolCall } from '../forest/example-tree'
import { currentCall, newestCall } from './following'

const at = (second: number) => `2026-11-27T10:00:${String(second).padStart(2, '0')}.000Z`

test('the current call began last of those that run, and the newest one of all', () => {
  const call = (id: string, from: number, to: number | null) =>
    toolCall(id, {
      startedAt: at(from),
      finishedAt: to === null ? null : at(to),
      status: to === null ? 'running' : 'succeeded',
    })
  const round = thinkAct('round', {
    startedAt: at(0),
    finishedAt: at(1),
    status: 'succeeded',
    toolCalls: [call('slow', 1, null), call('late', 2, null), call('done', 3, 4)],
  })
  const forest = forestOf(plan('root', { agentExecutions: [step('step', { thinkActs: [round] })] }))

  expect(currentCall(forest)?.key).toBe('late')
  expect(newestCall(forest)?.key).toBe('done')
  const empty = forestOf(plan('root'))
  expect(currentCall(empty)).toBeNull()
  expect(newestCall(empty)).toBeNull()
})
