/** What a node and all below it add up to, as `tracer.lineage` adds. */
import type { NodeTotals, TreeNode } from '../../api/shapes'

/**
 * Sums up a node, of which `own` leaves out its sub-plans. One object is both where there are none,
 * as most of a run's many leaves have none.
 *
 * @param within The nodes right below it in its plan.
 * @param plans The sub-plans that it opened.
 */
export function totals(node: TreeNode, within: readonly TreeNode[], plans: readonly TreeNode[]) {
  const own = ofItself(node)
  for (const child of within) addTotals(own, child.own)
  if (plans.length === 0 && within.every((child) => child.cumulative === child.own)) {
    return { own, cumulative: own }
  }
  const cumulative = ofItself(node)
  for (const child of [...within, ...plans]) addTotals(cumulative, child.cumulative)
  return { own, cumulative }
}

function ofItself(node: TreeNode): NodeTotals {
  const round = node.kind === 'thinkAct' ? node : null
  const acts = round !== null || node.kind === 'toolCall'
  return {
    inputTokens: round?.inputTokens ?? 0,
    outputTokens: round?.outputTokens ?? 0,
    costUsd: round?.costUsd ?? 0,
    toolCalls: node.kind === 'toolCall' ? 1 : 0,
    failures: acts && node.status === 'failed' ? 1 : 0,
  }
}

export function addTotals(sums: NodeTotals, more: NodeTotals) {
  sums.inputTokens += more.inputTokens
  sums.outputTokens += more.outputTokens
  sums.costUsd += more.costUsd
  sums.toolCalls += more.toolCalls
  sums.failures += more.failures
}
