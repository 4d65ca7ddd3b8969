/** The whole time of a run in a strip, with long idle times folded. */
import { isRecord, planOf, type Forest, type Row } from '../forest/rows'
import { endAt, united, type Span } from '../forest/spans'

/** An idle time is folded if it is at least this part of the run, and this long in milliseconds. */
const LONG_PART = 0.15
const LONG = 2_000
/** The part of the strip that a folded time takes. */
const FOLDED = 0.03

/** A part of the run's time and the part of the strip that shows it. */
export interface Section extends Span {
  from: number
  to: number
  isIdle: boolean
}

/**
 * Divides the time of a run into sections.
 *
 * @param busy When something took place, in any order, in milliseconds since the run began.
 * @param end When the run ended.
 */
export function sectionsOf(busy: readonly Span[], end: number): Section[] {
  const idle: Span[] = []
  let until = 0
  for (const span of united(busy)) {
    if (span.start - until >= Math.max(LONG, end * LONG_PART)) {
      idle.push({ start: until, end: span.start })
    }
    until = Math.max(until, span.end)
  }
  const folded = idle.reduce((sum, each) => sum + each.end - each.start, 0)
  const scale = (1 - FOLDED * idle.length) / Math.max(1e-6, end - folded)
  const sections: Section[] = []
  let [time, offset] = [0, 0]
  const add = (to: number, width: number, isIdle: boolean) => {
    if (to > time) sections.push({ start: time, end: to, from: offset, to: offset + width, isIdle })
    if (to > time) offset += width
    time = Math.max(time, to)
  }
  for (const each of idle) {
    add(each.start, (each.start - time) * scale, false)
    add(each.end, FOLDED, true)
  }
  add(end, (end - time) * scale, false)
  return sections
}

/** Where a moment is on the strip: 0 at its start, 1 at its end. */
export function fractionAt(sections: readonly Section[], moment: number): number {
  const section = sections.find((each) => moment <= each.end) ?? sections.at(-1)
  if (!section) return 0
  const part = (moment - section.start) / (section.end - section.start)
  return section.from + Math.min(1, Math.max(0, part)) * (section.to - section.from)
}

export function momentIn(sections: readonly Section[], fraction: number): number {
  const section = sections.find((each) => fraction <= each.to) ?? sections.at(-1)
  if (!section) return 0
  const part = (fraction - section.from) / Math.max(1e-9, section.to - section.from)
  return section.start + Math.min(1, Math.max(0, part)) * (section.end - section.start)
}

export interface Stroke {
  kind: 'thinkAct' | 'toolCall'
  /** How many agents are above it. */
  lane: number
  start: number
  end: number
}

const LANES = 5

/** The work of models and tools; each level of agents has a lane. */
export function strokesOf(forest: Forest, zero: number, now: number): Stroke[] {
  const lanes = new Map<Row, number>()
  const strokes: Stroke[] = []
  for (const row of forest.all) {
    const above = row.parent ? (lanes.get(row.parent) ?? 0) : -1
    lanes.set(row, planOf(row) && row.kind === 'plan' ? above + 1 : Math.max(0, above))
    if (!isRecord(row) || !row.span) continue
    if (row.kind !== 'thinkAct' && (row.kind !== 'toolCall' || opensAgent(row))) continue
    const start = row.span.start - zero
    const end = endAt({ start, end: row.span.end - zero }, now)
    strokes.push({ kind: row.kind, lane: Math.min(LANES - 1, lanes.get(row)!), start, end })
  }
  return strokes
}

/** Whether a call opened an agent whose own work is drawn instead. */
function opensAgent(row: Row): boolean {
  return row.children.some((child) => child.kind === 'plan' && child.children.length > 0)
}
