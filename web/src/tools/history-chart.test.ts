import { expect, test } from 'vitest'
import type { CallBucket, ToolHistory } from '../api/shapes'
import { linePath, roundTop, slotsOf, stackOf } from './history-chart'

function bucket(at: string, p50Ms: number | null = 10): CallBucket {
  return { at, calls: 6, succeeded: 3, failures: 1, cancelled: 1, p50Ms } as CallBucket
}

function history(buckets: CallBucket[], bucketSeconds = 3600): ToolHistory {
  return { buckets, bucketSeconds } as ToolHistory
}

test('the hours without calls have their room too', () => {
  const buckets = [bucket('2026-01-01T10:00:00Z'), bucket('2026-01-01T13:00:00Z')]
  const slots = slotsOf(history(buckets))

  expect(slots.map((slot) => slot.bucket)).toEqual([buckets[0], null, null, buckets[1]])
  expect(slots[1]!.at).toBe(Date.parse('2026-01-01T11:00:00Z'))
  expect(slotsOf(history([]))).toEqual([])
})

test('however far apart calls lie, a chart stays small and shows the latest', () => {
  const slots = slotsOf(
    history([bucket('1970-01-01T00:00:00Z'), bucket('2026-01-01T00:00:00Z')], 1),
  )

  expect(slots).toHaveLength(200)
  expect(slots.at(-1)!.bucket).not.toBeNull()
})

test('calls are stacked by how they went', () => {
  expect(stackOf(bucket('2026-01-01T10:00:00Z'))).toEqual([
    { part: 'succeeded', calls: 3 },
    { part: 'other', calls: 2 },
    { part: 'failed', calls: 1 },
  ])
  expect(stackOf(null)).toEqual([])
})

test.each([
  [0, 1],
  [1, 1],
  [7, 8],
  [23, 30],
  [999.5, 1000],
  [0.004, 0.004],
])('an axis for values up to %d ends at %d', (most, top) => {
  expect(roundTop(most)).toBe(top)
})

test('a line is broken where nothing ended, and a lone value is still seen', () => {
  const at = '2026-01-01T10:00:00Z'
  const slots = [10, 5, null, 0].map((p50) => ({ at: 0, bucket: bucket(at, p50) }))

  expect(linePath(slots, 'p50Ms', 10)).toBe('M0.125 0L0.375 0.5M0.75 1H1')
})
