/** A run's records as the rows of a tree. */
import { activityOf, type Activity } from '../../api/activity'
import type { Kind, NodeTotals, PlanNode, ToolCallNode, TreeNode } from '../../api/shapes'
import { namedParent, placeOf, recordId, type Records } from './records'
import { extentOf, spanOf, type Extent, type Span } from './spans'
import { NO_TOTALS, totalsOf } from './totals'

interface CommonRow {
  /** When it took place, in milliseconds since 1970; null if that is not known. */
  span: Span | null
  /** The same with all that is below it. */
  extent: Extent | null
  /** Totals without sub-agents, and with them. */
  own: NodeTotals
  cumulative: NodeTotals
  children: Row[]
}

export interface RecordRow extends CommonRow {
  /** The record's id; `kind:id` if a record of another kind has the same id. */
  key: string
  kind: Kind
  id: string
  record: TreeNode
  parent: Row | null
  /** Rows of further records that this row shows: see `merged-rows.ts`. */
  carried: readonly RecordRow[]
}

/** The heading of records whose parent is not known yet. */
export interface UnplacedRow extends CommonRow {
  key: typeof UNPLACED
  kind: typeof UNPLACED
  parent: null
}

export type Row = RecordRow | UnplacedRow

export const UNPLACED = 'unplaced'

export interface Forest {
  tops: Row[]
  /** Every row from top to bottom, as if all were open. */
  all: Row[]
  /** By the key of each record; rows that carry others are found by the keys of these, too. */
  byKey: ReadonlyMap<string, Row>
}

export const EMPTY_FOREST: Forest = { tops: [], all: [], byKey: new Map() }

export function isRecord(row: Row | null | undefined): row is RecordRow {
  return row != null && row.kind !== UNPLACED
}

/**
 * Turns records into rows. Each row hangs under the first of its named parents that exists; rows
 * without one, and one of each circle, hang under a heading. No recursion: runs may nest deeply.
 */
export function buildForest(records: Records, rootPlanId: string): Forest {
  const rows = new Map<string, RecordRow>()
  for (const [place, record] of records) rows.set(place, newRow(record))
  const root = rows.get(`plan:${rootPlanId}`)
  if (!root) return EMPTY_FOREST

  const loose: RecordRow[] = []
  for (const row of rows.values()) {
    if (row === root) continue
    row.parent = namedParent(row.record, rows)
    if (row.parent) row.parent.children.push(row)
    else loose.push(row)
  }
  for (const row of rows.values()) sort(row.children as RecordRow[])
  cutCircles(root, loose, rows)
  sort(loose)

  const tops: Row[] = [root]
  if (loose.length > 0) {
    const heading: UnplacedRow = {
      key: UNPLACED,
      kind: UNPLACED,
      parent: null,
      children: loose,
      span: null,
      extent: null,
      own: NO_TOTALS,
      cumulative: NO_TOTALS,
    }
    for (const row of loose) row.parent = heading
    tops.push(heading)
  }
  return finish(tops)
}

const NONE: readonly RecordRow[] = []

/** Without a spread, which takes several times as long: a run may have 10,000 records. */
function newRow(record: TreeNode): RecordRow {
  const id = recordId(record)
  return {
    key: id,
    kind: record.kind,
    id,
    record,
    parent: null,
    children: [],
    carried: NONE,
    span: null,
    extent: null,
    own: NO_TOTALS,
    cumulative: NO_TOTALS,
  }
}

const RANKS: Record<Kind, number> = { step: 0, thinkAct: 1, toolCall: 2, plan: 3 }

/** By kind, position and id; records without a position are last. */
function sort(rows: RecordRow[]) {
  if (rows.length < 2) return
  rows.sort((one, other) => {
    if (one.kind !== other.kind) return RANKS[one.kind] - RANKS[other.kind]
    const [left, right] = [one.record.position ?? Infinity, other.record.position ?? Infinity]
    if (left !== right) return left < right ? -1 : 1
    return one.id < other.id ? -1 : 1
  })
}

/** Makes one row of each circle of parents a loose one. */
function cutCircles(root: RecordRow, loose: RecordRow[], rows: ReadonlyMap<string, RecordRow>) {
  const reachable = inOrder([root, ...loose])
  if (reachable.length === rows.size) return
  const reached = new Set(reachable)
  const left = [...rows.values()].filter((row) => !reached.has(row))
  // Plans first, and in a fixed order, so that the same row is cut whatever arrived first.
  sort(left)
  const plans = left.filter((row) => row.kind === 'plan')
  for (const row of [...plans, ...left]) {
    if (reached.has(row)) continue
    const climbed = new Set<Row>()
    let top = row
    while (!climbed.has(top)) {
      climbed.add(top)
      top = top.parent as RecordRow
    }
    top.parent!.children = top.parent!.children.filter((each) => each !== top)
    top.parent = null
    loose.push(top)
    reach(reached, [top])
  }
}

function reach(reached: Set<Row>, tops: readonly Row[]) {
  const waiting = [...tops]
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    reached.add(row)
    for (const child of row.children) waiting.push(child)
  }
}

/** Gives each row its key, its time and its totals. */
function finish(tops: Row[]): Forest {
  const all = inOrder(tops)
  const byKey = new Map<string, Row>()
  for (const row of all) {
    if (isRecord(row) && (byKey.has(row.id) || row.id === UNPLACED)) row.key = placeOf(row.record)
    byKey.set(row.key, row)
  }
  for (let at = all.length - 1; at >= 0; at -= 1) {
    const row = all[at]!
    row.span = isRecord(row) ? spanOf(row.record, row.children) : null
    row.extent = extentOf(row.span, row.children)
    if (!isRecord(row)) continue
    const { own, cumulative } = totalsOf(row)
    row.own = own
    row.cumulative = cumulative
  }
  return { tops, all, byKey }
}

/** Every row from top to bottom, as if all were open. */
export function inOrder(tops: readonly Row[]): Row[] {
  const ordered: Row[] = []
  const waiting = [...tops].reverse()
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    ordered.push(row)
    for (let at = row.children.length - 1; at >= 0; at -= 1) waiting.push(row.children[at]!)
  }
  return ordered
}

/** The records that a row shows: its own, and those that it carries. */
export function recordsOf(row: Row): TreeNode[] {
  return isRecord(row) ? [row.record, ...row.carried.map((each) => each.record)] : []
}

/** The plan that a row shows, its own or a carried one, or null. */
export function planOf(row: Row): PlanNode | null {
  return recordsOf(row).find((record) => record.kind === 'plan') ?? null
}

/**
 * The totals that a row shows beside its duration: what a model call used by itself, since it ends
 * before its tools run; of any other record, everything below it, too.
 */
export function shownTotals(row: Row): NodeTotals {
  return row.kind === 'thinkAct' ? row.own : row.cumulative
}

/** The rows to show, from top to bottom, if those in `expanded` are open. */
export function visibleRows(
  tops: readonly Row[],
  expanded: ReadonlySet<string>,
  deepest = Infinity,
): Row[] {
  const visible: Row[] = []
  const waiting: [Row, number][] = [...tops].reverse().map((row) => [row, 1])
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const [row, depth] = next
    visible.push(row)
    if (depth >= deepest || !expanded.has(row.key)) continue
    for (let at = row.children.length - 1; at >= 0; at -= 1) {
      waiting.push([row.children[at]!, depth + 1])
    }
  }
  return visible
}

/** The rows above one, from the top down. */
export function ancestors(row: Row): Row[] {
  const above: Row[] = []
  for (let each = row.parent; each; each = each.parent) above.push(each)
  return above.reverse()
}

/** How deep a row is; the tops are at 1. */
export function depthOf(row: Row): number {
  let depth = 1
  for (let above = row.parent; above; above = above.parent) depth += 1
  return depth
}

/** A row and its siblings. */
export function siblingsOf(forest: Forest, row: Row): readonly Row[] {
  return row.parent?.children ?? forest.tops
}

/** The key of a record, whether or not the tree contains it. */
export function keyOf(forest: Forest, kind: Kind, id: string): string {
  const row = forest.byKey.get(id)
  return isRecord(row) && row.kind !== kind ? `${kind}:${id}` : id
}

/** The tool call that opened a plan; null if the tree does not contain it. */
export function openerOf(forest: Forest, plan: PlanNode): ToolCallNode | null {
  if (plan.toolCallId === null) return null
  const row = forest.byKey.get(keyOf(forest, 'toolCall', plan.toolCallId))
  return isRecord(row) && row.record.kind === 'toolCall' ? row.record : null
}

/** The root plan of a forest of records. */
export function rootOf(forest: Forest): PlanNode | null {
  const top = forest.tops[0]
  return isRecord(top) && top.record.kind === 'plan' ? top.record : null
}

/** Whether anything in the tree may still change. */
export function treeActivity(forest: Forest): Activity {
  let found: Activity = 'ended'
  for (const row of forest.all) {
    const activity = isRecord(row) ? activityOf(row.record.status) : 'ended'
    if (activity === 'active') return 'active'
    if (activity === 'uncertain') found = 'uncertain'
  }
  return found
}
