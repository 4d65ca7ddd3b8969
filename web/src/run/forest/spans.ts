/** From when to when a record took place. */
import { activityOf } from '../../api/activity'
import type { TreeNode } from '../../api/shapes'

/** In milliseconds. */
export interface Span {
  start: number
  /** Infinity while it runs. */
  end: number
}

/** From the first moment of several spans to their last. */
export interface Extent extends Span {
  /** The last known moment, even if something still runs. */
  known: number
}

/** The length of a moment whose second is not whole, as the API writes it. */
const TO_THE_MICROSECOND = '2026-01-31T12:00:00.000000Z'.length

/** A moment in milliseconds since 1970, to the microsecond that `Date` leaves out; null for none. */
export function momentOf(text: string | null): number | null {
  if (text === null) return null
  const milliseconds = Date.parse(text)
  if (Number.isNaN(milliseconds)) return null
  const isExact = text.length === TO_THE_MICROSECOND && text.endsWith('Z')
  return isExact ? milliseconds + Number(text.slice(23, 26)) / 1000 : milliseconds
}

/**
 * When a record took place, in milliseconds since 1970, or null if no time of it is known. If a clock
 * was set back and it ended before it began, it took no time. An abandoned record ends with the last
 * activity that is known below it, not when the lease of its recorder expired.
 */
export function spanOf(
  record: TreeNode,
  below: readonly { extent: Extent | null }[] = [],
): Span | null {
  const finished = momentOf(record.finishedAt)
  const started = momentOf(record.startedAt)
  if (started === null) return finished === null ? null : { start: finished, end: finished }
  if (finished !== null) return { start: started, end: Math.max(started, finished) }
  if (activityOf(record.status) === 'active') return { start: started, end: Infinity }
  const known = below.map(({ extent }) => extent?.known ?? started)
  return { start: started, end: Math.max(started, ...known) }
}

/** The extent of a span and of everything below it; null without any time. */
export function extentOf(
  own: Span | null,
  below: readonly { extent: Extent | null }[],
): Extent | null {
  let start = own?.start ?? Infinity
  let end = own?.end ?? -Infinity
  let known = end === Infinity ? start : end
  for (const { extent } of below) {
    if (extent === null) continue
    start = Math.min(start, extent.start)
    end = Math.max(end, extent.end)
    known = Math.max(known, extent.known)
  }
  return start === Infinity ? null : { start, end, known }
}

/** The same moments as spans that are in order and do not touch. */
export function united(spans: readonly Span[], gap = 0): Span[] {
  const joined: Span[] = []
  for (const span of [...spans].sort((one, other) => one.start - other.start)) {
    const last = joined.at(-1)
    if (last && span.start <= last.end + gap) last.end = Math.max(last.end, span.end)
    else joined.push({ ...span })
  }
  return joined
}

/** The end of a span; a span that still runs ends at `now`. */
export function endAt(span: Span, now: number): number {
  return span.end === Infinity ? Math.max(span.start, now) : span.end
}
