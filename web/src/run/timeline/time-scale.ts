/** The part of a run's time that the waterfall shows, and where moments are on it. */
import { endAt, type Span } from '../forest/spans'

/** From one moment to another, in milliseconds since the run's first; never empty. */
export interface TimeWindow {
  from: number
  to: number
}

/** Recorded times are exact to a microsecond; a shorter window shows nothing. */
const SHORTEST = 0.01

/** The window that shows all until `end`. */
export function wholeWindow(end: number): TimeWindow {
  return { from: 0, to: Math.max(end, 1) }
}

/** A window as near to the wished one as the whole allows. */
export function withinWhole(wished: TimeWindow, whole: TimeWindow): TimeWindow {
  const longest = whole.to - whole.from
  const length = Math.min(Math.max(wished.to - wished.from, Math.min(SHORTEST, longest)), longest)
  const from = Math.min(Math.max(wished.from, whole.from), whole.to - length)
  return { from, to: from + length }
}

/**
 * Makes the shown time `factor` times as long.
 *
 * @param fraction The moment that does not move: 0 is the window's start, 1 its end.
 */
export function zoomed(shown: TimeWindow, factor: number, fraction = 0.5): TimeWindow {
  const length = shown.to - shown.from
  const longer = Math.max(length * factor, SHORTEST)
  const from = shown.from + (length - longer) * fraction
  return { from, to: from + longer }
}

/** Moves the window by a part of its length. */
export function panned(shown: TimeWindow, part: number): TimeWindow {
  const by = (shown.to - shown.from) * part
  return { from: shown.from + by, to: shown.to + by }
}

/** The window for a record, with some air around it. */
export function windowAround(span: Span, now: number): TimeWindow {
  const end = endAt(span, now)
  const air = Math.max((end - span.start) * 0.1, SHORTEST)
  return { from: span.start - air, to: end + air }
}

/** Where a moment is: 0 at the window's start, 1 at its end. */
export function fractionOf(moment: number, shown: TimeWindow): number {
  return (moment - shown.from) / (shown.to - shown.from)
}

export function momentAt(fraction: number, shown: TimeWindow): number {
  return shown.from + fraction * (shown.to - shown.from)
}

export interface Bar {
  /** Parts of the window's width; the bar ends at the window's edges. */
  left: number
  width: number
}

/** Where a span is drawn; or on which side of the window it lies. */
export function barOf(span: Span, shown: TimeWindow, now: number): Bar | 'before' | 'after' {
  const end = endAt(span, now)
  if (end < shown.from) return 'before'
  if (span.start > shown.to) return 'after'
  const left = Math.max(0, fractionOf(span.start, shown))
  const right = Math.min(1, fractionOf(end, shown))
  return { left, width: Math.max(0, right - left) }
}

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

const ROUND_STEPS = [
  ...[1, 2, 5, 10, 15, 30].map((count) => count * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((count) => count * MINUTE),
  ...[1, 2, 3, 6, 12].map((count) => count * HOUR),
]

/** The shortest round step that divides a length into no more than so many parts. */
export function roundStep(length: number, parts: number): number {
  const least = length / Math.max(1, parts)
  if (least > SECOND / 2 && least <= 12 * HOUR) return ROUND_STEPS.find((step) => step >= least)!
  const unit = least > 12 * HOUR ? DAY : 1
  const power = 10 ** Math.floor(Math.log10(least / unit))
  const digit = [1, 2, 5, 10].find((each) => each * power * unit >= least * (1 - 1e-9))!
  return digit * power * unit
}

/** The moments to name on the axis: multiples of a round step, at most `most` of them and one. */
export function ticks(shown: TimeWindow, most: number): { step: number; moments: number[] } {
  const step = roundStep(shown.to - shown.from, most)
  const moments: number[] = []
  const first = Math.ceil(shown.from / step - 1e-9)
  // Counted, not added up: sums of fractions drift.
  for (let count = first; count * step <= shown.to * (1 + 1e-12); count += 1) {
    moments.push(count * step)
  }
  return { step, moments }
}

/** Reads a window from an address, `from-to` in milliseconds; null shows the whole. */
export function readWindow(text: string | null): TimeWindow | null {
  const found = /^(-?\d{1,13}(?:\.\d{1,4})?)-(-?\d{1,13}(?:\.\d{1,4})?)$/.exec(text ?? '')
  if (!found) return null
  const [from, to] = [Number(found[1]), Number(found[2])]
  return from < to ? { from, to } : null
}

/** Writes a window as exactly as it can be seen: to a hundred-thousandth of its length. */
export function writeWindow(shown: TimeWindow | null): string | null {
  if (shown === null) return null
  const digits = Math.min(4, Math.max(0, Math.ceil(-Math.log10((shown.to - shown.from) / 1e5))))
  return `${Number(shown.from.toFixed(digits))}-${Number(shown.to.toFixed(digits))}`
}
