/** Runs and failures over time, in bins of one length. */
import type { Run } from '../api/shapes'

export interface Bin {
  from: number
  to: number
  runs: number
  failures: number
}

const BINS = 60

/**
 * Counts runs by when they started.
 *
 * @param from The start of the first bin, in milliseconds; null for the first of the runs.
 */
export function binsOf(runs: readonly Run[], from: number | null, to: number): Bin[] {
  const starts = runs
    .filter((run) => run.startedAt !== null)
    .map((run) => ({ at: Date.parse(run.startedAt!), failed: run.status === 'failed' }))
  if (starts.length === 0) return []
  const first = from ?? Math.min(...starts.map(({ at }) => at))
  const length = Math.max(1_000, to - first) / BINS
  const bins = Array.from({ length: BINS }, (_, index) => ({
    from: first + index * length,
    to: first + (index + 1) * length,
    runs: 0,
    failures: 0,
  }))
  for (const { at, failed } of starts) {
    const bin = bins[Math.min(BINS - 1, Math.floor((at - first) / length))]
    if (!bin) continue
    bin.runs += 1
    if (failed) bin.failures += 1
  }
  return bins
}
