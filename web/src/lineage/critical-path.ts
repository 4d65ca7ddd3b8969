/** The chain of records that determined when a run ended. */
import type { Forest, Row } from './rows'
import type { Span } from './spans'

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
export function criticalPath(forest: Forest): Set<string> {
  const path = new Set<string>()
  const top = forest.tops[0]
  const waiting: Row[] = top?.extent ? [top] : []
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    path.add(row.key)
    let until = row.extent!.end
    const children: { child: Row; extent: Span }[] = []
    for (const child of row.children) {
      const { extent } = child
      if (extent && extent.start < extent.end) children.push({ child, extent })
    }
    children.sort((a, b) => order(b.extent.end, a.extent.end) || a.extent.start - b.extent.start)
    for (const { child, extent } of children) {
      if (extent.end > until) continue
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
