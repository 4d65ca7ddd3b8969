/** The chain of records that determined when a run ended. */
import { UNPLACED, type Row } from '../forest/rows'
import type { Span } from '../forest/spans'

/** For rows that were asked about, the keys of the children that they waited for. */
const known = new WeakMap<Row, ReadonlySet<string>>()

/**
 * Whether a row is on the critical path.
 *
 * Seen from its end, a row waited for that child which ended last; before that one began, for the
 * one that had ended last by then; and so on down to its start. The same holds within each of these
 * children. What ran beside them and ended earlier could have taken longer without the run ending
 * later, so it is not on the path; nor is what took no time. A child counts with everything below
 * it: a round ends when its model has answered, before the calls that it chose begin. Of children
 * that end together, as all that still run do, the one that began first is taken.
 */
export function isCritical(row: Row): boolean {
  let below = row
  for (let above = row.parent; above; above = above.parent) {
    if (!waitedFor(above).has(below.key)) return false
    below = above
  }
  return below.kind !== UNPLACED && below.extent !== null
}

function waitedFor(row: Row): ReadonlySet<string> {
  const before = known.get(row)
  if (before) return before
  const keys = new Set<string>()
  let until = row.extent?.end ?? -Infinity
  const children: { key: string; extent: Span }[] = []
  for (const { key, extent } of row.children) {
    if (extent && extent.start < extent.end) children.push({ key, extent })
  }
  children.sort((a, b) => order(b.extent.end, a.extent.end) || a.extent.start - b.extent.start)
  for (const { key, extent } of children) {
    if (extent.end > until) continue
    keys.add(key)
    until = extent.start
  }
  known.set(row, keys)
  return keys
}

/** Unlike a difference, right for open spans too: Infinity less Infinity is no number. */
function order(one: number, other: number): number {
  return one === other ? 0 : one < other ? -1 : 1
}
