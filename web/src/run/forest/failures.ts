/** Where a run went wrong. */
import { inOrder, isRecord, planOf, rootOf, type Forest, type RecordRow, type Row } from './rows'

/** The origin of a failure: a failed record without a failed one below it, or an abandoned record. */
export interface Failure {
  row: RecordRow
  /** Whether a record above it ended without failing, so that the failure did not end the run. */
  isHandled: boolean
  /** How many agents are above it. */
  depth: number
}

/** Returns each failure once, at its origin, from top to bottom. */
export function failures(all: readonly Row[]): Failure[] {
  const above = { failed: new Set<Row>(), abandoned: new Set<Row>() }
  const found: Failure[] = []
  // From the bottom, so that the rows below a row are known before the row.
  for (let at = all.length - 1; at >= 0; at -= 1) {
    const row = all[at]!
    for (const status of ['failed', 'abandoned'] as const) {
      const isOrigin = isRecord(row) && row.record.status === status && !above[status].has(row)
      if (isOrigin) found.push({ row, isHandled: isHandled(row), depth: agentsAbove(row) })
      if ((isOrigin || above[status].has(row)) && row.parent) above[status].add(row.parent)
    }
  }
  return found.reverse()
}

/** Whether a record ended badly, as far as is known. */
export function isBad(status: string): boolean {
  return status === 'failed' || status === 'abandoned'
}

/**
 * Whether a record above a failure ended without failing; only records below `end` count.
 *
 * A model call ends before its tools run, so its status does not reflect their failures. A step may
 * end before the agent to which it handed over.
 */
function isHandled(row: RecordRow, end: Row | null = null): boolean {
  let isOpen = false
  let below = row
  for (let above = row.parent; above && above !== end; above = above.parent) {
    if (!isRecord(above)) return row.record.status === 'failed'
    const { status } = above.record
    const hasHandedOver = above.kind === 'step' && below.kind === 'plan'
    below = above
    if (above.kind === 'thinkAct' || (hasHandedOver && status !== 'failed')) continue
    if (status === 'succeeded' || status === 'cancelled') return true
    // It failed although the failure had not ended the open record below it.
    if (status === 'failed' && isOpen && row.record.status === 'failed') return true
    isOpen = status !== 'failed'
  }
  return false
}

function agentsAbove(row: RecordRow): number {
  let agents = -1
  for (let each: Row | null = row; each; each = each.parent) if (planOf(each)) agents += 1
  return Math.max(0, agents)
}

/** The failure that ended the run, as the API chooses it; or the first of the abandoned records. */
export function originOf(forest: Forest, found: readonly Failure[]): Failure | null {
  const status = rootOf(forest)?.status
  if (status === undefined || !isBad(status)) return null
  const unhandled = found.filter(({ row, isHandled: is }) => !is && row.record.status === status)
  const startOf = ({ row }: Failure) => row.span?.start ?? 0
  const earliestFirst = (one: Failure, other: Failure) => startOf(one) - startOf(other)
  const order = status === 'abandoned' ? earliestFirst : lastFirst
  return unhandled.reduce<Failure | null>(
    (first, each) => (first && order(first, each) <= 0 ? first : each),
    null,
  )
}

/** Orders failures: the one that ended last is first among those below one failed record. */
function lastFirst(one: Failure, other: Failure): number {
  const [first, second] = [failedPath(one.row), failedPath(other.row)]
  const at = first.findIndex((row, index) => row !== second[index])
  const [left, right] = [first[at], second[at]]
  if (!left || !right) return 0
  return endOf(right) - endOf(left) || (left.id < right.id ? 1 : -1)
}

/** The failed records from the root to a record. */
function failedPath(row: RecordRow): RecordRow[] {
  const path: RecordRow[] = []
  for (let above: Row | null = row; above; above = above.parent) {
    if (isRecord(above) && above.record.status === 'failed') path.push(above)
  }
  return path.reverse()
}

const endOf = ({ record }: RecordRow) => Date.parse(record.finishedAt ?? '') || 0

/**
 * The failure that made a record above it fail, too.
 *
 * @param row A record of a forest in which each record has a row.
 * @returns The origin below the record, one with the same error if there is any; null if the record
 *   has not failed, or failed by itself.
 */
export function inheritedFrom(row: RecordRow): RecordRow | null {
  if (row.record.status !== 'failed') return null
  const found = failures(inOrder(row.children))
    .filter(({ row: origin }) => origin.record.status === 'failed' && !isHandled(origin, row))
    .sort(lastFirst)
    .map((each) => each.row)
  return found.find((origin) => hasErrorOf(row, origin)) ?? found[0] ?? null
}

/** Whether a record's error is that of another record, or contains its message. */
export function hasErrorOf(row: RecordRow, origin: RecordRow): boolean {
  const [error, first] = [row.record.error, origin.record.error]
  if (!error || !first) return false
  if (first.message) return error.message?.includes(first.message) === true
  return error.type === first.type && !error.message
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

/** The next of `wanted` after a row in the order of the tree, or the one before, cyclically. */
export function neighbour(
  order: ReadonlyMap<string, number>,
  wanted: readonly Row[],
  from: string | null,
  direction: 1 | -1,
): Row | null {
  const here = from === null ? -1 : (order.get(from) ?? -1)
  const indexOf = (row: Row) => order.get(row.key) ?? -1
  const found =
    direction === 1
      ? wanted.find((row) => indexOf(row) > here)
      : wanted.findLast((row) => indexOf(row) < here)
  return found ?? wanted.at(direction === 1 ? 0 : -1) ?? null
}
