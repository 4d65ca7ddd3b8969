/** The time intervals of a chart: one after another, over the whole range. */
import type { CallBucket, ToolHistory } from '../api/shapes'

export interface Slot<Bucket = CallBucket> {
  /** In milliseconds. */
  start: number
  end: number
  /** Null without calls. */
  bucket: Bucket | null
}

/** A range with more intervals has only those with calls, and their neighbours. */
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
  const count = Math.round((last - first) / width) + 1
  const starts =
    count <= MOST_SLOTS
      ? Array.from({ length: count }, (_, index) => first + index * width)
      : startsNear([...byStart.keys()], width, first, last)
  return starts.map((start) => ({
    start,
    end: start + width,
    bucket: byStart.get(start) ?? null,
  }))
}

/** The neighbours are empty, so that no line joins calls that lie far apart. */
function startsNear(starts: number[], width: number, first: number, last: number): number[] {
  const near = starts.flatMap((start) => [start - width, start, start + width])
  const within = [first, ...near, last].filter((start) => start >= first && start <= last)
  return [...new Set(within)].sort((one, other) => one - other)
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
  const { calls, succeeded, failed, abandoned } = bucket
  return [calls, calls - failed, calls - failed - abandoned, succeeded]
}
