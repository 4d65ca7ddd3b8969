/** The time intervals of a chart: one after another, over the whole range. */
import type { CallBucket, ToolHistory } from '../api/shapes'

export interface Slot<Bucket = CallBucket> {
  /** In milliseconds. */
  start: number
  end: number
  /** Null without calls. */
  bucket: Bucket | null
}

/** A chart has room for this many; the latest are shown. */
const MOST_SLOTS = 400

/**
 * The intervals of a range.
 *
 * @param from The start of the range in milliseconds; null for the first bucket.
 * @param to The end of the range.
 */
export function slotsOf<Bucket extends { at: string }>(
  buckets: readonly Bucket[],
  bucketSeconds: number,
  from: number | null,
  to: number,
): Slot<Bucket>[] {
  const width = bucketSeconds * 1000
  const byStart = new Map(buckets.map((bucket) => [Date.parse(bucket.at), bucket]))
  if (byStart.size === 0 || !(width > 0)) return []
  const floor = (at: number) => Math.floor(at / width) * width
  const last = Math.max(floor(to - 1), ...byStart.keys())
  const first = Math.min(from === null ? last : floor(from), ...byStart.keys())
  const count = Math.min(MOST_SLOTS, Math.round((last - first) / width) + 1)
  return Array.from({ length: count }, (_, index) => {
    const start = last - (count - 1 - index) * width
    return { start, end: start + width, bucket: byStart.get(start) ?? null }
  })
}

export function slotsOfHistory(
  { buckets, bucketSeconds }: ToolHistory,
  from: number | null,
  to: number,
): Slot[] {
  return slotsOf(buckets, bucketSeconds, from, to)
}

/** The parts of a bar, from the top of the stack down. */
export const PARTS = ['failed', 'abandoned', 'other', 'succeeded'] as const

export type Part = (typeof PARTS)[number]

/** The height that the stack reaches with each part, in the order of `PARTS`. */
export function stackOf(bucket: CallBucket | null): number[] {
  if (bucket === null) return PARTS.map(() => 0)
  const { calls, succeeded, failures, abandoned } = bucket
  return [calls, calls - failures, calls - failures - abandoned, succeeded]
}
