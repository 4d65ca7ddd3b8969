/** Which siblings of a row ran at the same time. */
import { isRecord, type Row } from './rows'
import type { Span } from './spans'

/** By the parent, for each child how many of its siblings ran at the same time. */
const known = new WeakMap<Row, ReadonlyMap<string, number>>()

/** Returns how many siblings of a row ran at least in part while it did. */
export function parallelTo(row: Row): number {
  if (row.parent === null) return 0
  const before = known.get(row.parent)
  const counts = before ?? countsIn(row.parent.children)
  if (!before) known.set(row.parent, counts)
  return counts.get(row.key) ?? 0
}

function countsIn(siblings: readonly Row[]): Map<string, number> {
  const timed = siblings.flatMap((row) => {
    const span = timeOf(row)
    return span ? [{ key: row.key, ...span }] : []
  })
  const starts = timed.map(({ start }) => start).sort((one, other) => one - other)
  const ends = timed.map(({ end }) => end).sort((one, other) => one - other)
  // All that began before its end, without those that had ended by its start.
  return new Map(
    timed.map(({ key, start, end }) => [
      key,
      Math.max(0, countBelow(starts, end, false) - countBelow(ends, start, true) - 1),
    ]),
  )
}

/** A call with all below it; a model call ends before its tools run, so it alone. */
function timeOf(row: Row): Span | null {
  if (!isRecord(row)) return null
  const span = row.kind === 'thinkAct' ? row.span : row.extent
  return span && span.start < span.end ? span : null
}

/** How many of the sorted moments are before another; with `inclusive`, or at it. */
function countBelow(sorted: readonly number[], moment: number, inclusive: boolean): number {
  let [from, to] = [0, sorted.length]
  while (from < to) {
    const middle = (from + to) >> 1
    const isBelow = inclusive ? sorted[middle]! <= moment : sorted[middle]! < moment
    if (isBelow) from = middle + 1
    else to = middle
  }
  return from
}
