/** The bars of the chart: every interval of the range, those without runs too. */
import type { RunHistogram } from '../api/shapes'

export interface Bin {
  from: number
  to: number
  runs: number
  failed: number
}

type Counted = Pick<RunHistogram, 'bins' | 'intervalSeconds'>

/**
 * @param from The start of the range, in milliseconds; null for the first run.
 * @param to The end of the range; null for the last run.
 */
export function binsOf(histogram: Counted, from: number | null, to: number | null): Bin[] {
  const starts = histogram.bins.map((bin) => Date.parse(bin.start))
  if (starts.length === 0) return []
  const length = histogram.intervalSeconds * 1_000
  const first = Math.floor((from ?? starts[0]!) / length) * length
  const end = Math.max(to ?? 0, starts.at(-1)! + 1)
  const count = Math.ceil((end - first) / length)
  const bins = Array.from({ length: count }, (_, index) => ({
    from: first + index * length,
    to: first + (index + 1) * length,
    runs: 0,
    failed: 0,
  }))
  histogram.bins.forEach((counted, index) => {
    const bin = bins[(starts[index]! - first) / length]
    if (bin) Object.assign(bin, { runs: counted.runs, failed: counted.failed })
  })
  return bins
}

/** A moment that the axis names. */
export interface Tick {
  /** In milliseconds. */
  at: number
  /** Where it is, as a share of the chart's width. */
  share: number
  /** Whether it is a midnight of the reader, which is named by its day. */
  isDay: boolean
}

const HOUR = 3_600_000
/** The distances of named moments below a day, in milliseconds; above it, in days. */
const STEPS = [
  ...[1, 5, 15, 30].map((seconds) => seconds * 1_000),
  ...[1, 5, 15, 30, 60, 180, 360, 720].map((minutes) => minutes * 60_000),
]
/** The part of a moment's room that its name takes: the chart's end would cut a later one. */
const NAME_SHARE = 0.6
const DAYS = [1, 2, 3, 7, 14, 28, 91, 364]

/**
 * Returns moments to name, at most `most`: round times of the reader's day. Without a round time,
 * the chart's start is named.
 */
export function ticksOf(bins: readonly Bin[], most: number): Tick[] {
  const [first, last] = [bins[0], bins.at(-1)]
  if (!first || !last) return []
  const length = last.to - first.from
  const fits = (step: number) => Math.floor(length / step) <= most
  // A bar of a whole day has no moments within.
  const isDaily = first.to - first.from >= 24 * HOUR
  const step = isDaily ? undefined : STEPS.find(fits)
  const days = DAYS.find((each) => fits(24 * HOUR * each)) ?? 1_820
  const start = new Date(first.from)
  const ticks: Tick[] = []
  for (let index = 0, at = 0; at < last.to && ticks.length <= most; index += 1) {
    // By the calendar: not all days have 24 hours.
    const day = new Date(start.getFullYear(), start.getMonth(), start.getDate() + days * index)
    at = step ? floorOf(first.from, step) + step * index : day.getTime()
    const date = new Date(at)
    const isDay = date.getHours() === 0 && date.getMinutes() === 0
    const share = (at - first.from) / length
    if (at >= first.from && share <= 1 - NAME_SHARE / most) ticks.push({ at, share, isDay })
  }
  return ticks.length > 0 ? ticks : [{ at: first.from, share: 0, isDay: false }]
}

/** The last moment before another that is a multiple of a step after the reader's midnight. */
function floorOf(moment: number, step: number): number {
  const midnight = new Date(moment).setHours(0, 0, 0, 0)
  return midnight + Math.floor((moment - midnight) / step) * step
}
