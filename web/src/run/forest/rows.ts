/** The API's hierarchy as the rows of one tree: what hangs under what, and what is visible. */
import { activityOf, type Activity } from '../../api/activity'
import type { Kind, PlanNode, ToolCallNode, TreeNode } from '../../api/shapes'
import { extentOf, spanOf, type Extent, type Span } from './spans'

interface RowTimes {
  /** When it took place, in milliseconds since 1970; null where that is not known. */
  span: Span | null
  /** The same with all that is below it. */
  extent: Extent | null
}

export interface RecordRow extends RowTimes {
  /** The record's id; `kind:id` where another kind of record has the same one. */
  key: string
  kind: Kind
  id: string
  record: TreeNode
  parent: Row | null
  children: Row[]
}

/** The heading of what has no known parent yet. */
export interface UnplacedRow extends RowTimes {
  key: typeof UNPLACED
  kind: typeof UNPLACED
  parent: null
  children: Row[]
}

export type Row = RecordRow | UnplacedRow

export const UNPLACED = 'unplaced'

export interface Forest {
  tops: Row[]
  byKey: Map<string, Row>
}

export const EMPTY_FOREST: Forest = { tops: [], byKey: new Map() }

export function isRecord(row: Row | null | undefined): row is RecordRow {
  return row != null && row.kind !== UNPLACED
}

export function recordId(record: TreeNode): string {
  switch (record.kind) {
    case 'plan':
      return record.planId
    case 'step':
      return record.stepId
    case 'thinkAct':
      return record.thinkActId
    case 'toolCall':
      return record.toolCallId
  }
}

/** The records right below one, in the order in which the tree shows them. */
export function childRecords(record: TreeNode): readonly TreeNode[] {
  switch (record.kind) {
    case 'plan':
      return record.agentExecutions
    case 'step':
      return [...record.thinkActs, ...record.toolCalls, ...record.subPlans]
    case 'thinkAct':
      return record.toolCalls
    case 'toolCall':
      // Of most calls nothing hangs, and a run has thousands.
      return record.subPlans.length === 0
        ? record.toolCalls
        : [...record.toolCalls, ...record.subPlans]
  }
}

/** The records below a root plan whose parent is not known yet. */
export function unplacedRecords(plan: PlanNode): TreeNode[] {
  // Below the root plan the API leaves the list out, whatever its types say.
  return (plan.unplaced as TreeNode[] | undefined) ?? []
}

/**
 * Turns a plan with everything below it into rows. No recursion: a run may nest deeply.
 *
 * @param before What was shown of the run before, which is taken over: its rows stay the same objects
 *   where their records are, with all below them.
 */
export function buildForest(plan: PlanNode, before: Forest = EMPTY_FOREST): Forest {
  const byKey = new Map<string, Row>()
  const waiting: Row[] = []
  const made: Row[] = []

  function add(record: TreeNode, parent: Row | null): RecordRow {
    const id = recordId(record)
    const key = byKey.has(id) || id === UNPLACED ? `${record.kind}:${id}` : id
    const known = before.byKey.get(key)
    const isSame = isRecord(known) && known.record === record
    const row: RecordRow = isSame
      ? known
      : { key, kind: record.kind, id, record, parent, children: [], span: null, extent: null }
    row.parent = parent
    byKey.set(key, row)
    waiting.push(row)
    if (!isSame) made.push(row)
    return row
  }

  const tops: Row[] = [add(plan, null)]
  const unplaced = unplacedRecords(plan)
  if (unplaced.length > 0) {
    const heading: UnplacedRow = {
      key: UNPLACED,
      kind: UNPLACED,
      parent: null,
      children: [],
      span: null,
      extent: null,
    }
    byKey.set(UNPLACED, heading)
    made.push(heading)
    heading.children = unplaced.map((record) => add(record, heading))
    tops.push(heading)
  }
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    const parent = row
    const below = isRecord(row) ? childRecords(row.record) : []
    if (below.length > 0) row.children = below.map((record) => add(record, parent))
  }
  // What is below a row was made after it.
  for (const row of made.reverse()) {
    row.span = isRecord(row) ? spanOf(row.record) : null
    row.extent = extentOf(row.span, row.children)
  }
  return { tops, byKey }
}

/** The rows to show, from top to bottom, where those in `expanded` are open. */
export function visibleRows(tops: readonly Row[], expanded: ReadonlySet<string>): Row[] {
  const visible: Row[] = []
  const waiting = [...tops].reverse()
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    visible.push(row)
    if (!expanded.has(row.key)) continue
    for (let at = row.children.length - 1; at >= 0; at -= 1) waiting.push(row.children[at]!)
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

/** A row and those beside it. */
export function siblingsOf(forest: Forest, row: Row): readonly Row[] {
  return row.parent?.children ?? forest.tops
}

/** The key of a record, whether or not the tree holds it. */
export function keyOf(forest: Forest, kind: Kind, id: string): string {
  const row = forest.byKey.get(id)
  return isRecord(row) && row.kind !== kind ? `${kind}:${id}` : id
}

/** The tool call that opened a plan, as far as the tree holds it. */
export function openerOf(forest: Forest, plan: PlanNode): ToolCallNode | null {
  if (plan.toolCallId === null) return null
  const row = forest.byKey.get(keyOf(forest, 'toolCall', plan.toolCallId))
  return isRecord(row) && row.record.kind === 'toolCall' ? row.record : null
}

/** Whether anything in the tree may still change. */
export function treeActivity(forest: Forest): Activity {
  let found: Activity = 'ended'
  for (const row of forest.byKey.values()) {
    const activity = isRecord(row) ? activityOf(row.record.status) : 'ended'
    if (activity === 'active') return 'active'
    if (activity === 'uncertain') found = 'uncertain'
  }
  return found
}
