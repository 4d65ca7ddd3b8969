import { expect, test } from 'vitest'
import type { TreeNode } from '../../api/shapes'
import { toolCall } from './example-tree'
import { extentOf, momentOf, spanOf, united } from './spans'

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
})

test('an abandoned record ends with the last activity below it, not with the lease', () => {
  const at = (second: number) => Date.UTC(2026, 0, 1, 12, 0, second)
  const silent = toolCall('call', {
    ...ran(1, null, 'abandoned'),
    abandonedAt: ran(9, null).startedAt!,
  })
  const below = { extent: { start: at(2), end: at(4), known: at(4) } }

  expect(spanOf(silent)).toEqual({ start: at(1), end: at(1) })
  expect(spanOf(silent, [below])).toEqual({ start: at(1), end: at(4) })
})

test('a clock that was set back makes nothing negative', () => {
  const span = spanOf(toolCall('call', ran(5, 1)))!

  expect(span.end - span.start).toBe(0)
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

test('an extent reaches over all that is below, and knows what has an end', () => {
  const early = { extent: { start: 1, end: 2, known: 2 } }
  const open = { extent: { start: 4, end: Infinity, known: 5 } }
  const timeless = { extent: null }

  expect(extentOf({ start: 3, end: 4 }, [early, timeless])).toEqual({ start: 1, end: 4, known: 4 })
  expect(extentOf(null, [early, open])).toEqual({ start: 1, end: Infinity, known: 5 })
  expect(extentOf({ start: 7, end: Infinity }, [])).toEqual({ start: 7, end: Infinity, known: 7 })
  expect(extentOf(null, [timeless])).toBeNull()
})
