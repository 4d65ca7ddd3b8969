/** Two compared runs as the rows of one tree: visible rows, and the differences of each pair. */
import type { RecordPair } from '../api/shapes'

export interface DiffRow {
  /** The left record's id, else the right one's; `kind:id` where another kind has the same one. */
  key: string
  pair: RecordPair
  parent: DiffRow | null
  children: DiffRow[]
  level: number
}

export interface DiffRows {
  top: DiffRow
  byKey: Map<string, DiffRow>
}

/** Turns a comparison into rows. No recursion: a run may nest deeply. */
export function buildDiffRows(root: RecordPair): DiffRows {
  const byKey = new Map<string, DiffRow>()

  function add(pair: RecordPair, parent: DiffRow | null): DiffRow {
    const id = (pair.left ?? pair.right)!.id
    const key = byKey.has(id) ? `${pair.kind}:${id}` : id
    const row: DiffRow = { key, pair, parent, children: [], level: (parent?.level ?? 0) + 1 }
    byKey.set(key, row)
    return row
  }

  const top = add(root, null)
  const waiting = [top]
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    const parent = row
    row.children = row.pair.children.map((pair) => add(pair, parent))
    waiting.push(...row.children)
  }
  return { top, byKey }
}

/** Whether a pair differs, or anything below it does. */
export function isAffected({ pair }: DiffRow): boolean {
  return pair.change !== 'same' || pair.changedBelow > 0
}

/** Whether a row is open: by itself where something below it differs, unless it was turned over. */
export function isOpen(row: DiffRow, turned: ReadonlySet<string>): boolean {
  const { left, right, changedBelow } = row.pair
  // A record that only one run has differs with all records below it: its top row counts.
  const byItself = row.parent === null || (changedBelow > 0 && left !== null && right !== null)
  return byItself !== turned.has(row.key)
}

/** The children that are shown. */
export function shownChildren(row: DiffRow, onlyDifferences: boolean): DiffRow[] {
  return onlyDifferences ? row.children.filter(isAffected) : row.children
}

/** The rows to show, from top to bottom. */
export function visibleDiffRows(
  top: DiffRow,
  turned: ReadonlySet<string>,
  onlyDifferences: boolean,
): DiffRow[] {
  const visible: DiffRow[] = []
  const waiting = [top]
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    visible.push(row)
    if (isOpen(row, turned)) waiting.push(...[...shownChildren(row, onlyDifferences)].reverse())
  }
  return visible
}

/** The rows that differ themselves, from top to bottom; for records of one run only, the topmost. */
export function differingRows(top: DiffRow): DiffRow[] {
  const found: DiffRow[] = []
  const waiting = [top]
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    const { change } = row.pair
    if (change !== 'same') found.push(row)
    if (change === 'added' || change === 'removed') continue
    waiting.push(...[...row.children].reverse())
  }
  return found
}

/** The row among `wanted` that comes next after one, or before it; from the last to the first. */
export function neighbour(
  top: DiffRow,
  wanted: readonly DiffRow[],
  from: DiffRow | null,
  direction: 1 | -1,
): DiffRow | null {
  const sought = new Set(wanted)
  const order = inOrder(top).filter((row) => sought.has(row) || row === from)
  const place = from === null ? -1 : order.indexOf(from)
  const around = [...order.slice(place + 1), ...order.slice(0, Math.max(0, place))]
  if (direction === -1) around.reverse()
  return around.find((row) => sought.has(row)) ?? null
}

function inOrder(top: DiffRow): DiffRow[] {
  const found: DiffRow[] = []
  const waiting = [top]
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    found.push(row)
    waiting.push(...[...row.children].reverse())
  }
  return found
}

/** The keys to turn over so that a row shows. */
export function closedAbove(row: DiffRow, turned: ReadonlySet<string>): string[] {
  const keys: string[] = []
  for (let each = row.parent; each; each = each.parent)
    if (!isOpen(each, turned)) keys.push(each.key)
  return keys
}

/** How much slower or faster the right record was; null if the difference is negligible. */
export function speedOf(pair: RecordPair): { slower: boolean; factor: number | null } | null {
  if (!pair.differs.includes('duration')) return null
  const [left, right] = [pair.left?.durationMs ?? 0, pair.right?.durationMs ?? 0]
  const least = Math.min(left, right)
  return { slower: right > left, factor: least > 0 ? Math.max(left, right) / least : null }
}

/** The plan that a step's row hangs under, on one of the sides. */
export function planIdOf(row: DiffRow, side: 'left' | 'right'): string | null {
  for (let each = row.parent; each; each = each.parent) {
    if (each.pair.kind === 'plan') return each.pair[side]?.id ?? null
  }
  return null
}
