import { expect, test } from 'vitest'
import type { TreeNode } from '../../api/shapes'
import { forestOf, nested, plan, step, thinkAct, toolCall } from '../forest/example-tree'

import { buildTimeline, NO_TIMELINE, spanIn, timeWithin } from './timeline'

/** Fields of a record that ran from one second of a minute to another; null is open. */
function ran(start: number | null, end: number | null, status: TreeNode['status'] = 'succeeded') {
  const at = (second: number | null) =>
    second === null ? null : new Date(Date.UTC(2026, 0, 1, 12, 0, second)).toISOString()
  return { startedAt: at(start), finishedAt: at(end), status }
}

test('time is counted from the first moment of the run, whichever record has it', () => {
  const early = toolCall('early', ran(2, 4))
  const tree = plan('root', {
    ...ran(5, 9),
    agentExecutions: [step('step', { ...ran(6, null, 'running'), toolCalls: [early] })],
  })
  const forest = forestOf(tree)
  const timeline = buildTimeline(forest)
  const span = (key: string) => spanIn(timeline, forest.byKey.get(key)!)

  expect(span('early')).toEqual({ start: 0, end: 2_000 })
  expect(span('root')).toEqual({ start: 3_000, end: 7_000 })
  expect(timeline.end).toBe(7_000)
  expect(timeline.open).toBe(true)
})

test('a tree without any time has no timeline', () => {
  const tree = plan('root', ran(null, null, 'pending'))

  expect(buildTimeline(forestOf(tree))).toBe(NO_TIMELINE)
})

test('the time in sub-plans is that of all at once, within the row, up to the plan around it', () => {
  const opened = [plan('one', ran(2, 6)), plan('two', ran(4, 8)), plan('long', ran(9, 30))]
  const call = toolCall('call', { ...ran(1, 10), subPlans: opened })
  const round = thinkAct('round', { ...ran(0, 1), toolCalls: [call] })
  const tree = plan('root', {
    ...ran(0, 20),
    agentExecutions: [step('step', { ...ran(0, 20), thinkActs: [round] })],
  })
  const forest = forestOf(tree)
  const timeline = buildTimeline(forest)
  const within = (key: string) => timeWithin(timeline, forest.byKey.get(key)!, 0)

  expect(timeline.within.get('call')).toEqual([
    { start: 2_000, end: 6_000 },
    { start: 4_000, end: 8_000 },
    { start: 9_000, end: 10_000 },
  ])
  expect(['call', 'round', 'step', 'root', 'one'].map(within)).toEqual([
    7_000, 0, 17_000, 17_000, 0,
  ])
})

test('a sub-plan that goes on counts until now', () => {
  const call = toolCall('call', {
    ...ran(0, null, 'running'),
    subPlans: [plan('sub', ran(2, null, 'running'))],
  })
  const forest = forestOf(plan('root', { ...ran(0, null), unplaced: [call] }))

  expect(timeWithin(buildTimeline(forest), forest.byKey.get('call')!, 5_000)).toBe(3_000)
})

test('an ordinary tree has a span for each record', () => {
  const forest = forestOf(nested([toolCall('stray')]))

  const rows = [...forest.byKey.values()]
  expect(rows.filter((row) => row.span === null).map((row) => row.key)).toEqual(['unplaced'])
})
