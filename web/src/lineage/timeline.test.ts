import { expect, test } from 'vitest'
import type { TreeNode } from '../api/shapes'
import { nested, plan, step, thinkAct, toolCall } from './example-tree'
import { buildForest } from './rows'
import { buildTimeline, momentOf, NO_TIMELINE, spanOf, timeWithin, united } from './timeline'

/** Fields of a record that ran from one second of a minute to another; null is open. */
function ran(start: number | null, end: number | null, status: TreeNode['status'] = 'succeeded') {
  const at = (second: number | null) =>
    second === null ? null : new Date(Date.UTC(2026, 0, 1, 12, 0, second)).toISOString()
  return { startedAt: at(start), finishedAt: at(end), status }
}

test('moments are read to the microsecond', () => {
  const later = momentOf('2026-11-21T22:21:52.462812Z')! - momentOf('2026-11-21T22:21:52.462Z')!

  expect(later).toBeCloseTo(0.812, 3)
  expect(momentOf('2026-11-21T22:21:52Z')).toBe(Date.UTC(2026, 10, 21, 22, 21, 52))
  expect(momentOf(null)).toBeNull()
  expect(momentOf('yesterday')).toBeNull()
})

test('a record lasts from its start to its end, or goes on', () => {
  const at = (second: number) => Date.UTC(2026, 0, 1, 12, 0, second)
  const span = (fields: Partial<ReturnType<typeof ran>> & { abandonedAt?: string }) =>
    spanOf(toolCall('call', fields))

  expect(span(ran(1, 3))).toEqual({ start: at(1), end: at(3) })
  expect(span(ran(1, null, 'running'))).toEqual({ start: at(1), end: Infinity })
  expect(span(ran(1, null, 'unknown'))).toEqual({ start: at(1), end: at(1) })
  expect(span(ran(null, 3))).toEqual({ start: at(3), end: at(3) })
  expect(span(ran(null, null, 'pending'))).toBeNull()
  expect(span({ ...ran(1, null, 'abandoned'), abandonedAt: ran(9, null).startedAt! })).toEqual({
    start: at(1),
    end: at(9),
  })
})

test('a clock that was set back makes nothing negative', () => {
  const span = spanOf(toolCall('call', ran(5, 1)))!

  expect(span.end - span.start).toBe(0)
})

test('time is counted from the first moment of the run, whichever record has it', () => {
  const early = toolCall('early', ran(2, 4))
  const tree = plan('root', {
    ...ran(5, 9),
    agentExecutions: [step('step', { ...ran(6, null, 'running'), toolCalls: [early] })],
  })
  const timeline = buildTimeline(buildForest(tree))

  expect(timeline.spans.get('early')).toEqual({ start: 0, end: 2_000 })
  expect(timeline.spans.get('root')).toEqual({ start: 3_000, end: 7_000 })
  expect(timeline.end).toBe(7_000)
  expect(timeline.open).toBe(true)
})

test('a tree without any time has no timeline', () => {
  const tree = plan('root', ran(null, null, 'pending'))

  expect(buildTimeline(buildForest(tree))).toBe(NO_TIMELINE)
})

test('the time in sub-plans is that of all at once, within the row, up to the plan around it', () => {
  const opened = [plan('one', ran(2, 6)), plan('two', ran(4, 8)), plan('long', ran(9, 30))]
  const call = toolCall('call', { ...ran(1, 10), subPlans: opened })
  const round = thinkAct('round', { ...ran(0, 1), toolCalls: [call] })
  const tree = plan('root', {
    ...ran(0, 20),
    agentExecutions: [step('step', { ...ran(0, 20), thinkActs: [round] })],
  })
  const forest = buildForest(tree)
  const timeline = buildTimeline(forest)
  const within = (key: string) => timeWithin(timeline, forest.byKey.get(key)!, 0)

  expect(timeline.within.get('call')).toEqual([
    { start: 2_000, end: 8_000 },
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
  const forest = buildForest(plan('root', { ...ran(0, null), unplaced: [call] }))

  expect(timeWithin(buildTimeline(forest), forest.byKey.get('call')!, 5_000)).toBe(3_000)
})

test('spans that touch are one, and gaps that do not count are closed', () => {
  const spans = [
    { start: 5, end: 7 },
    { start: 0, end: 2 },
    { start: 2, end: 3 },
  ]

  expect(united(spans)).toEqual([
    { start: 0, end: 3 },
    { start: 5, end: 7 },
  ])
  expect(united(spans, 2)).toEqual([{ start: 0, end: 7 }])
})

test('an ordinary tree has a span for each record', () => {
  const forest = buildForest(nested([toolCall('stray')]))

  expect(buildTimeline(forest).spans.size).toBe(forest.byKey.size - 1)
})
