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
  const itself = ofItself(node)
  if (node.status === 'failed' && !hasFailureBelow([...within, ...plans])) itself.failures = 1
  const own = { ...itself }
  for (const child of within) addTotals(own, child.own)
  if (plans.length === 0 && within.every((child) => child.cumulative === child.own)) {
    return { own, cumulative: own }
  }
  const cumulative = itself
  for (const child of [...within, ...plans]) addTotals(cumulative, child.cumulative)
  return { own, cumulative }
}

function ofItself(node: TreeNode): NodeTotals {
  const round = node.kind === 'thinkAct' ? node : null
  return {
    inputTokens: round?.inputTokens ?? 0,
    outputTokens: round?.outputTokens ?? 0,
    costUsd: round?.costUsd ?? 0,
    toolCalls: node.kind === 'toolCall' ? 1 : 0,
    failures: 0,
  }
}

/** Whether the failure of a node began in one of those right below it: rounds pass failures on. */
function hasFailureBelow(below: readonly TreeNode[]): boolean {
  return below.some(
    (child) =>
      child.status === 'failed' ||
      (child.kind === 'thinkAct' && child.toolCalls.some((call) => call.status === 'failed')) ||
      (child.kind === 'step' && child.subPlans.some((plan) => plan.status === 'failed')),
  )
}

export function addTotals(sums: NodeTotals, more: NodeTotals) {
  sums.inputTokens += more.inputTokens
  sums.outputTokens += more.outputTokens
  sums.costUsd += more.costUsd
  sums.toolCalls += more.toolCalls
  sums.failures += more.failures
}
