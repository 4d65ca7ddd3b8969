/** When each record of a run took place, in milliseconds since the run's first moment. */
import type { TreeNode } from '../api/shapes'
import { activityOf } from './activity'
import { isRecord, type Forest, type Row } from './rows'

export interface Span {
  start: number
  /** Infinity while it goes on. */
  end: number
}

export interface Timeline {
  /** The run's first moment, in milliseconds since 1970. */
  zero: number
  /** The last moment that is known, however much still goes on. */
  end: number
  /** Whether anything goes on. */
  open: boolean
  /** By row key; rows without any time have none. */
  spans: ReadonlyMap<string, Span>
  /** The parts of a row's span during which sub-plans ran below it, in order and apart. */
  within: ReadonlyMap<string, readonly Span[]>
}

export const NO_TIMELINE: Timeline = {
  zero: 0,
  end: 0,
  open: false,
  spans: new Map(),
  within: new Map(),
}

/** A moment in milliseconds since 1970, to the microsecond that `Date` leaves out; null for none. */
export function momentOf(text: string | null): number | null {
  if (text === null) return null
  const milliseconds = Date.parse(text)
  if (Number.isNaN(milliseconds)) return null
  const finer = /\.\d{3}(\d{1,6})/.exec(text)
  return finer ? milliseconds + Number(`0.${finer[1]}`) : milliseconds
}

/**
 * When a record took place, in milliseconds since 1970, or null where no time of it is known. What
 * ended before it began, by a clock that was set back, took no time; what went silent lasted until
 * that was noticed.
 */
export function spanOf(record: TreeNode): Span | null {
  const finished = momentOf(record.finishedAt) ?? momentOf(record.abandonedAt)
  const started = momentOf(record.startedAt)
  if (started === null) return finished === null ? null : { start: finished, end: finished }
  if (finished !== null) return { start: started, end: Math.max(started, finished) }
  const goesOn = activityOf(record.status) === 'active'
  return { start: started, end: goesOn ? Infinity : started }
}

export function buildTimeline(forest: Forest): Timeline {
  const spans = new Map<string, Span>()
  let zero = Infinity
  let end = -Infinity
  let open = false
  for (const row of forest.byKey.values()) {
    const span = isRecord(row) ? spanOf(row.record) : null
    if (span === null) continue
    spans.set(row.key, span)
    zero = Math.min(zero, span.start)
    end = Math.max(end, span.start, Number.isFinite(span.end) ? span.end : span.start)
    open ||= span.end === Infinity
  }
  if (spans.size === 0) return NO_TIMELINE
  for (const span of spans.values()) {
    span.start -= zero
    span.end -= zero
  }
  return { zero, end: end - zero, open, spans, within: spansWithin(forest, spans) }
}

/** For each row, when the sub-plans ran that it or what is below it in its own plan opened. */
function spansWithin(forest: Forest, spans: ReadonlyMap<string, Span>) {
  const found = new Map<string, Span[]>()
  for (const row of forest.byKey.values()) {
    const span = row.kind === 'plan' ? spans.get(row.key) : undefined
    if (!span) continue
    for (let above = row.parent; above; above = above.parent) {
      const own = spans.get(above.key)
      const start = Math.max(span.start, own?.start ?? Infinity)
      const end = Math.min(span.end, own?.end ?? -Infinity)
      if (start < end) {
        const known = found.get(above.key)
        if (known) known.push({ start, end })
        else found.set(above.key, [{ start, end }])
      }
      if (above.kind === 'plan') break
    }
  }
  return new Map([...found].map(([key, parts]) => [key, united(parts)]))
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

/** When a span ends, for one that goes on seen at `now`. */
export function endAt(span: Span, now: number): number {
  return span.end === Infinity ? Math.max(span.start, now) : span.end
}

/** How long sub-plans ran within a row, in milliseconds, what goes on counting until `now`. */
export function timeWithin(timeline: Timeline, row: Row, now: number): number {
  const parts = timeline.within.get(row.key) ?? []
  return parts.reduce((sum, part) => sum + endAt(part, now) - part.start, 0)
}
