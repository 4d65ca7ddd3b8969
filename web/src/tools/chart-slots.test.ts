import { expect, test } from 'vitest'
import type { CallBucket } from '../api/shapes'
import { slotsOf, stackOf } from './chart-slots'

function bucket(at: string): CallBucket {
  return { at, calls: 7, succeeded: 3, failed: 1, cancelled: 2, abandoned: 1 } as CallBucket
}

const HOUR = 3_600_000
const at = (hour: number) => Date.parse('2026-01-01T00:00:00Z') + hour * HOUR
const BUCKETS = [bucket('2026-01-01T10:00:00Z'), bucket('2026-01-01T13:00:00Z')]

test('a chart covers the chosen range, also where no call was made', () => {
  const slots = slotsOf(BUCKETS, 3600, at(8.5), at(15))

  expect(slots.map(({ start }) => (start - at(0)) / HOUR)).toEqual([8, 9, 10, 11, 12, 13, 14])
  expect(slots.map((slot) => slot.bucket !== null)).toEqual([
    ...[false, false, true, false, false, true, false],
  ])
})

test('without a start, a chart begins with the first call', () => {
  expect(slotsOf(BUCKETS, 3600, null, at(14)).map(({ start }) => start)).toEqual([
    ...[at(10), at(11), at(12), at(13)],
  ])
  expect(slotsOf([], 3600, null, at(14))).toEqual([])
})

test('a chart of a very long range keeps every interval with calls', () => {
  const old = bucket('1970-01-01T00:00:00Z')
  const slots = slotsOf([old, ...BUCKETS], 3600, null, at(1_000))

  expect(slots.flatMap((slot) => slot.bucket ?? [])).toEqual([old, ...BUCKETS])
  expect(slots.length).toBeLessThan(20)
  expect([slots[0]!.start, slots.at(-1)!.end]).toEqual([0, at(1_000)])
})

test('calls are stacked by outcome, abandoned ones apart', () => {
  expect(stackOf(BUCKETS[0]!)).toEqual([7, 6, 5, 3])
  expect(stackOf(null)).toEqual([0, 0, 0, 0])
})
