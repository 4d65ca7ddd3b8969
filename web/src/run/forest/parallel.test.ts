import { expect, test } from 'vitest'
import { forestOf, plan, step, toolCall } from './example-tree'
import { parallelTo } from './parallel'

const at = (second: number) => `2026-11-27T10:00:${String(second).padStart(2, '0')}.000Z`

test('calls count the siblings that ran while they did', () => {
  const call = (id: string, from: number, to: number) =>
    toolCall(id, { startedAt: at(from), finishedAt: at(to), status: 'succeeded' })
  const calls = [call('a', 0, 4), call('b', 1, 3), call('c', 3, 5), call('d', 5, 6)]
  const forest = forestOf(plan('root', { agentExecutions: [step('step', { toolCalls: calls })] }))

  const counts = ['a', 'b', 'c', 'd'].map((key) => parallelTo(forest.byKey.get(key)!))
  expect(counts).toEqual([2, 1, 1, 0])
  expect(parallelTo(forest.tops[0]!)).toBe(0)
})
