/** A run's records as the rows of a tree. */
import { activityOf, type Activity } from '../../api/activity'
import type { Kind, NodeTotals, PlanNode, ToolCallNode, TreeNode } from '../../api/shapes'
import type { Extent, Span } from './spans'

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
 * The totals that a row shows. For a model call, these are its own, like its duration: it ends before
 * its tools run. For any other record, they include everything below it.
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
