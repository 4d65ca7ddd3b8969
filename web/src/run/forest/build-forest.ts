/** Turns a run's records into the rows of its tree. */
import type { Kind, TreeNode } from '../../api/shapes'
import { namedParent, keyOf, recordId, type Records } from './records'
import {
  EMPTY_FOREST,
  inOrder,
  isRecord,
  UNPLACED,
  type Forest,
  type RecordRow,
  type Row,
  type UnplacedRow,
} from './rows'
import { extentOf, spanOf } from './spans'
import { NO_TOTALS, totalsOf, withUnpriced } from './totals'

/**
 * Turns records into rows. Each row hangs under the first of its named parents that exists; rows
 * without one, and one of each circle, hang under a heading. No recursion: runs may nest deeply.
 *
 * @param unreadSpans How many model calls of unknown cost the run has without records.
 */
export function buildForest(records: Records, rootPlanId: string, unreadSpans = 0): Forest {
  const rows = new Map<string, RecordRow>()
  for (const [key, record] of records) rows.set(key, newRow(record))
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
  const forest = finish(tops)
  root.own = withUnpriced(root.own, unreadSpans)
  root.cumulative = withUnpriced(root.cumulative, unreadSpans)
  return forest
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

/** Plans that continue the work of a call follow the plan that it opened. */
function rank({ kind, record }: RecordRow) {
  return 'continues' in record && record.continues ? RANKS.plan + 1 : RANKS[kind]
}

/** By kind, position and id; records without a position are last. */
function sort(rows: RecordRow[]) {
  if (rows.length < 2) return
  rows.sort((one, other) => {
    if (rank(one) !== rank(other)) return rank(one) - rank(other)
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
    for (const below of inOrder([top])) reached.add(below)
  }
}

/** Gives each row its key, its time and its totals. */
function finish(tops: Row[]): Forest {
  const all = inOrder(tops)
  const byKey = new Map<string, Row>()
  for (const row of all) {
    if (isRecord(row) && (byKey.has(row.id) || row.id === UNPLACED)) row.key = keyOf(row.record)
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
