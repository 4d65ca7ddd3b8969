/** How a tool's calls went over time, as shapes of a small chart. */
import type { CallBucket, ToolHistory } from '../api/shapes'

export interface Slot {
  /** When it begins, in milliseconds. */
  at: number
  /** Null without calls. */
  bucket: CallBucket | null
}

/** A chart has room for this many; the latest are shown. */
const MOST_SLOTS = 200

/** Spans of time one after another, those without calls included. */
export function slotsOf({ buckets, bucketSeconds }: ToolHistory): Slot[] {
  const width = bucketSeconds * 1000
  const [first, last] = [buckets[0], buckets.at(-1)]
  if (!first || !last || !(width > 0)) return []
  const end = Date.parse(last.at)
  const start = Math.max(Date.parse(first.at), end - (MOST_SLOTS - 1) * width)
  const byStart = new Map(buckets.map((bucket) => [Date.parse(bucket.at), bucket]))
  return Array.from({ length: Math.round((end - start) / width) + 1 }, (_, index) => {
    const at = start + index * width
    return { at, bucket: byStart.get(at) ?? null }
  })
}

/** The calls of a slot by outcome, from the bottom of the stack up. */
export function stackOf(
  bucket: CallBucket | null,
): { part: 'succeeded' | 'other' | 'failed'; calls: number }[] {
  if (bucket === null) return []
  const { calls, succeeded, failures } = bucket
  return [
    { part: 'succeeded' as const, calls: succeeded },
    { part: 'other' as const, calls: calls - succeeded - failures },
    { part: 'failed' as const, calls: failures },
  ].filter((each) => each.calls > 0)
}

/** The end of an axis that begins at zero: a round number that holds all values. */
export function roundTop(most: number): number {
  if (!(most > 0)) return 1
  const power = 10 ** Math.floor(Math.log10(most))
  return [1, 2, 3, 4, 5, 8, 10].map((step) => step * power).find((top) => top >= most)!
}

export type Percentile = 'p50Ms' | 'p95Ms' | 'p99Ms'

/**
 * A line through the slots' values, broken at empty slots, in a box of 1 by 1 with its zero
 * at the bottom; an isolated value is as wide as its slot.
 */
export function linePath(slots: readonly Slot[], field: Percentile, top: number): string {
  const width = 1 / slots.length
  const parts: string[] = []
  let isOpen = false
  slots.forEach(({ bucket }, index) => {
    const value = bucket?.[field] ?? null
    if (value === null) {
      isOpen = false
      return
    }
    const y = round(1 - value / top)
    const next = slots[index + 1]?.bucket?.[field] ?? null
    if (isOpen) parts.push(`L${round((index + 0.5) * width)} ${y}`)
    else if (next !== null) parts.push(`M${round((index + 0.5) * width)} ${y}`)
    else parts.push(`M${round(index * width)} ${y}H${round((index + 1) * width)}`)
    isOpen = true
  })
  return parts.join('')
}

function round(value: number): number {
  return Math.round(value * 1e4) / 1e4
}
