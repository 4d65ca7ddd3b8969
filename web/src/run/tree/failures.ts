/** Where a run went wrong: which rows are failures, and how many are below a closed row. */
import { isRecord, type Forest, type Row } from '../forest/rows'

/**
 * The rows to stop at when looking for what went wrong, from top to bottom: each tool call and round
 * that failed or went silent, and a plan or step that did with nothing such below it. A plan or step
 * that failed because of a call says nothing that the call does not.
 */
export function failures(ordered: readonly Row[]): Row[] {
  const withFailure = new Set<Row>()
  const found: Row[] = []
  // From the bottom, so that what is below a row is known when it is its turn.
  for (const row of [...ordered].reverse()) {
    const isAct = row.kind === 'toolCall' || row.kind === 'thinkAct'
    const wentWrong = isRecord(row) && isBad(row.record.status)
    if (wentWrong && (isAct || !withFailure.has(row))) {
      found.push(row)
      withFailure.add(row)
    }
    if (withFailure.has(row) && row.parent) withFailure.add(row.parent)
  }
  return found.reverse()
}

function isBad(status: string): boolean {
  return status === 'failed' || status === 'abandoned'
}

/** Every row, from top to bottom, as if all were open. */
export function inOrder(forest: Forest): Row[] {
  const ordered: Row[] = []
  const waiting = [...forest.tops].reverse()
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    ordered.push(row)
    for (let at = row.children.length - 1; at >= 0; at -= 1) waiting.push(row.children[at]!)
  }
  return ordered
}

/** How many of these rows are below each row that has any. */
export function countsBelow(rows: readonly Row[]): Map<string, number> {
  const counts = new Map<string, number>()
  for (const row of rows) {
    for (let above = row.parent; above; above = above.parent) {
      counts.set(above.key, (counts.get(above.key) ?? 0) + 1)
    }
  }
  return counts
}

/** The next of `wanted` after a row in the order of the tree, or the one before; they go round. */
export function neighbour(
  order: ReadonlyMap<string, number>,
  wanted: readonly Row[],
  from: string | null,
  direction: 1 | -1,
): Row | null {
  const here = from === null ? -1 : (order.get(from) ?? -1)
  const place = (row: Row) => order.get(row.key) ?? -1
  const found =
    direction === 1
      ? wanted.find((row) => place(row) > here)
      : wanted.findLast((row) => place(row) < here)
  return found ?? wanted.at(direction === 1 ? 0 : -1) ?? null
}
