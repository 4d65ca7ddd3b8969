/** The chain of records that determined when a run ended. */
import type { Forest, Row } from './rows'
import type { Span } from './timeline'

/**
 * Returns the keys of the rows on the critical path.
 *
 * Seen from its end, a row waited for that child which ended last; before that one began, for the
 * one that had ended last by then; and so on down to its start. The same holds within each of these
 * children. What ran beside them and ended earlier could have taken longer without the run ending
 * later, so it is not on the path; nor is what took no time. A child counts with everything below
 * it: a round ends when its model has answered, before the calls that it chose begin. Of children
 * that end together, as all that still run do, the one that began first is taken.
 */
export function criticalPath(forest: Forest, spans: ReadonlyMap<string, Span>): Set<string> {
  const extents = extentsOf(forest, spans)
  const path = new Set<string>()
  const top = forest.tops[0]
  const waiting: Row[] = top && extents.has(top) ? [top] : []
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    path.add(row.key)
    let until = extents.get(row)!.end
    const children = row.children
      .map((child) => ({ child, extent: extents.get(child) }))
      .filter((each): each is { child: Row; extent: Span } => each.extent !== undefined)
      .sort((a, b) => order(b.extent.end, a.extent.end) || a.extent.start - b.extent.start)
    for (const { child, extent } of children) {
      if (extent.end > until || extent.start >= extent.end) continue
      waiting.push(child)
      until = extent.start
    }
  }
  return path
}

/** Unlike a difference, right for what goes on too: Infinity less Infinity is no number. */
function order(one: number, other: number): number {
  return one === other ? 0 : one < other ? -1 : 1
}

/** From a row's first moment to its last, everything below it included. */
function extentsOf(forest: Forest, spans: ReadonlyMap<string, Span>): Map<Row, Span> {
  const extents = new Map<Row, Span>()
  const downwards: Row[] = [...forest.tops]
  // The list grows while it is walked, each row before what is below it.
  for (const row of downwards) for (const child of row.children) downwards.push(child)
  for (const row of downwards.reverse()) {
    const own = spans.get(row.key)
    const extent = extents.get(row)
    const whole = own && extent ? hull(own, extent) : (own ?? extent)
    if (!whole) continue
    extents.set(row, whole)
    if (row.parent === null) continue
    const above = extents.get(row.parent)
    extents.set(row.parent, above ? hull(above, whole) : whole)
  }
  return extents
}

function hull(one: Span, other: Span): Span {
  return { start: Math.min(one.start, other.start), end: Math.max(one.end, other.end) }
}
