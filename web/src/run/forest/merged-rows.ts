/** The rows that the tree shows by default: fewer than there are records. */
import type { PlanNode } from '../../api/shapes'
import { inOrder, isRecord, type Forest, type RecordRow, type Row } from './rows'

/**
 * Merges rows that repeat each other: a plan with a single step of the same agent is one row, and a tool
 * call that opened one sub-agent carries it. The merged row is found by the keys of all its records.
 */
export function mergeRows(forest: Forest): Forest {
  const tops = forest.tops.map((row) => ({ ...row }))
  const waiting: Row[] = [...tops]
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    const parent = row
    const { carried, children } = isRecord(row)
      ? withoutRepetition(row)
      : { carried: [], children: row.children }
    if (isRecord(parent)) parent.carried = carried
    parent.children = children.map((child) => copyBelow(child, parent))
    for (const child of parent.children) waiting.push(child)
  }
  const all = inOrder(tops)
  const byKey = new Map<string, Row>()
  for (const row of all) {
    byKey.set(row.key, row)
    if (isRecord(row)) for (const each of row.carried) byKey.set(each.key, row)
  }
  return { tops, all, byKey }
}

/** Without a spread, which takes several times as long. Only records are below other rows. */
function copyBelow(row: Row, parent: Row): Row {
  if (!isRecord(row)) return row
  const { key, kind, id, record, children, carried, span, extent, own, cumulative } = row
  return { key, kind, id, record, parent, children, carried, span, extent, own, cumulative }
}

/** The rows that a row takes over from below it, and the children that it has then. */
function withoutRepetition(row: RecordRow): { carried: RecordRow[]; children: Row[] } {
  const carried: RecordRow[] = []
  let last = row
  for (let next = onlyChild(last); next && saysTheSame(last, next); next = onlyChild(last)) {
    carried.push(next)
    last = next
  }
  return { carried, children: last.children }
}

function onlyChild(row: Row): RecordRow | null {
  const [child, other] = row.children
  return other === undefined && isRecord(child) ? child : null
}

function saysTheSame(row: RecordRow, child: RecordRow): boolean {
  // A part of a piece of work begins with a row of its own.
  if (child.record.kind === 'plan' && child.record.continues) return false
  if (row.record.kind === 'toolCall') return child.kind === 'plan'
  if (row.record.kind !== 'plan' || child.record.kind !== 'step') return false
  return isSameAgent(row.record, child.record.agentName)
}

function isSameAgent(plan: PlanNode, agentName: string | null): boolean {
  return plan.agentName === null || agentName === null || plan.agentName === agentName
}
