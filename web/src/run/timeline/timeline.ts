/** When a run's records took place, in milliseconds since the run's first moment. */
import type { Forest, Row } from '../forest/rows'
import { endAt, united, type Span } from '../forest/spans'

export interface Timeline {
  /** The run's first moment, in milliseconds since 1970. */
  zero: number
  /** The last known moment, even if something still runs. */
  end: number
  /** Whether anything still runs. */
  open: boolean
  /** By row key, the parts of a row's span during which sub-plans ran below it, in no order. */
  within: ReadonlyMap<string, readonly Span[]>
}

export const NO_TIMELINE: Timeline = { zero: 0, end: 0, open: false, within: new Map() }

export function buildTimeline(forest: Forest): Timeline {
  const extents = forest.tops.map((top) => top.extent).filter((extent) => extent !== null)
  if (extents.length === 0) return NO_TIMELINE
  const zero = Math.min(...extents.map((extent) => extent.start))
  const end = Math.max(...extents.map((extent) => extent.known)) - zero
  const open = extents.some((extent) => extent.end === Infinity)
  return { zero, end, open, within: spansWithin(forest, zero) }
}

/** The time of a row; null if it is unknown. */
export function spanIn(timeline: Timeline, row: Row): Span | null {
  return row.span && since(timeline.zero, row.span)
}

function since(zero: number, { start, end }: Span): Span {
  return { start: start - zero, end: end - zero }
}

/** For each row, the times of the sub-agents that were opened within its own plan. */
function spansWithin(forest: Forest, zero: number) {
  const found = new Map<string, Span[]>()
  for (const row of forest.all) {
    const span = row.kind === 'plan' ? row.span : null
    if (!span) continue
    for (let above = row.parent; above; above = above.parent) {
      const start = Math.max(span.start, above.span?.start ?? Infinity)
      const end = Math.min(span.end, above.span?.end ?? -Infinity)
      if (start < end) {
        const part = since(zero, { start, end })
        const known = found.get(above.key)
        if (known) known.push(part)
        else found.set(above.key, [part])
      }
      if (above.kind === 'plan') break
    }
  }
  return found
}

/** How long sub-agents ran within a row, in milliseconds; open ones count until `now`. */
export function timeWithin(timeline: Timeline, row: Row, now: number): number {
  const parts = united(timeline.within.get(row.key) ?? [])
  return parts.reduce((sum, part) => sum + endAt(part, now) - part.start, 0)
}
