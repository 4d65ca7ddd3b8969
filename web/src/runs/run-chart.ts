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
