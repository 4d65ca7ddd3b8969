/** Sums over a record and the records below it, as `tracer.lineage` adds them up. */
import type { NodeTotals, TreeNode } from '../../api/shapes'
import { isRecord, shownTotals, type Forest, type Row } from './rows'

interface Summed {
  record: TreeNode
  children: readonly { kind: string; own: NodeTotals; cumulative: NodeTotals }[]
}

/** Returns the totals of a record: `own` leaves out its sub-agents. */
export function totalsOf({ record, children }: Summed): {
  own: NodeTotals
  cumulative: NodeTotals
} {
  const own = ofItself(record)
  // Most records have no children: both are one object then.
  const cumulative = children.length > 0 ? { ...own } : own
  for (const child of children) {
    if (child.kind !== 'plan') add(own, child.own)
    add(cumulative, child.cumulative)
  }
  // A failure counts once, at its origin.
  if (record.status === 'failed' && cumulative.failures === 0) {
    own.failures = cumulative.failures = 1
  }
  return { own, cumulative }
}

/** Returns the totals of a whole run: those of its root plan and of the records without a parent. */
export function totalsOfRun(tops: readonly Row[]): NodeTotals {
  const sums = { ...NO_TOTALS }
  for (const top of tops) {
    for (const row of isRecord(top) ? [top] : top.children) add(sums, row.cumulative)
  }
  return sums
}

function ofItself(record: TreeNode): NodeTotals {
  if (record.kind === 'plan' && record.folded) return { ...record.folded }
  const round = record.kind === 'thinkAct' ? record : null
  const inputTokens = round?.inputTokens ?? 0
  const outputTokens = round?.outputTokens ?? 0
  const hasCost = round?.status === 'succeeded' || inputTokens + outputTokens > 0
  const isUnpriced = round !== null && round.costUsd === null && hasCost
  return {
    inputTokens,
    outputTokens,
    costUsd: isUnpriced ? null : (round?.costUsd ?? 0),
    unpricedCalls: isUnpriced ? 1 : 0,
    toolCalls: record.kind === 'toolCall' ? 1 : 0,
    failures: 0,
  }
}

function add(sums: NodeTotals, more: NodeTotals) {
  sums.inputTokens += more.inputTokens
  sums.outputTokens += more.outputTokens
  const costUsd = (sums.costUsd ?? 0) + (more.costUsd ?? 0)
  sums.unpricedCalls += more.unpricedCalls
  sums.costUsd = costUsd === 0 && sums.unpricedCalls > 0 ? null : costUsd
  sums.toolCalls += more.toolCalls
  sums.failures += more.failures
}

/** The same totals with more model calls of unknown cost. */
export function withUnpriced(totals: NodeTotals, calls: number): NodeTotals {
  if (calls === 0) return totals
  const unpricedCalls = totals.unpricedCalls + calls
  return { ...totals, unpricedCalls, costUsd: totals.costUsd || null }
}

export const NO_TOTALS: NodeTotals = {
  inputTokens: 0,
  outputTokens: 0,
  costUsd: 0,
  unpricedCalls: 0,
  toolCalls: 0,
  failures: 0,
}

/** Returns the part of a run's cost that a row shows; null if one of them is unknown. */
export function shareOf(row: Row, records: Forest): number | null {
  const whole = records.tops[0]?.cumulative.costUsd
  const part = shownTotals(row).costUsd
  return whole && part !== null ? part / whole : null
}
