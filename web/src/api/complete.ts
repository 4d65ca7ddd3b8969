/**
 * Records of a tree leave out fields that have their default (docs/openapi.json); this adds them,
 * so that the rest of the viewer reads every field.
 */
import type {
  Kind,
  NodeTotals,
  PlanNode,
  RunChanges,
  StepNode,
  ThinkActNode,
  ToolCallNode,
  TreeNode,
} from './shapes'

const NO_TOTALS: NodeTotals = {
  inputTokens: 0,
  outputTokens: 0,
  costUsd: 0,
  unpricedCalls: 0,
  toolCalls: 0,
  failures: 0,
}
const ONE_CALL: NodeTotals = { ...NO_TOTALS, toolCalls: 1 }

const ROW = {
  reason: null,
  startedAt: null,
  finishedAt: null,
  abandonedAt: null,
  durationMs: null,
  clockShiftUs: null,
  position: null,
  masked: null,
  error: null,
}

type Always = 'kind' | 'status'
type Below = 'agentExecutions' | 'thinkActs' | 'toolCalls' | 'subPlans'
type OfTree = 'own' | 'cumulative' | 'subPlanCount' | 'parentActToolCall'

type Row<Node, Id> = Omit<Node, Always | Below | OfTree | (Id & keyof Node)>

const PLAN: Row<PlanNode, 'planId' | 'rootPlanId'> = {
  ...ROW,
  parentPlanId: null,
  toolCallId: null,
  openedByStepId: null,
  depth: null,
  title: null,
  agentName: null,
  template: null,
  templateVersion: null,
  inferred: false,
  inferredFrom: null,
  userRequest: null,
  userRequestBytes: null,
  userRequestTruncated: false,
  summary: null,
  summaryBytes: null,
  summaryTruncated: false,
}

const STEP: Row<StepNode, 'stepId'> = {
  ...ROW,
  planId: null,
  agentName: null,
  request: null,
  requestBytes: null,
  requestTruncated: false,
  result: null,
  resultBytes: null,
  resultTruncated: false,
}

const THINK_ACT: Row<ThinkActNode, 'thinkActId'> = {
  ...ROW,
  stepId: null,
  requestedModel: null,
  model: null,
  inputTokens: null,
  outputTokens: null,
  costUsd: null,
  inferred: false,
  inferredFrom: null,
  thought: null,
  thoughtBytes: null,
  thoughtTruncated: false,
}

const TOOL_CALL: Row<ToolCallNode, 'toolCallId'> = {
  ...ROW,
  stepId: null,
  thinkActId: null,
  parentToolCallId: null,
  continuedPlanId: null,
  providerCallId: null,
  name: null,
  toolType: null,
  attempt: null,
  forgedArguments: [],
  shortCircuitedBy: null,
  stillRunning: null,
  agentKey: null,
  agentEndSequence: null,
  inferred: false,
  inferredFrom: null,
  arguments: null,
  argumentsBytes: null,
  argumentsTruncated: false,
  result: null,
  resultBytes: null,
  resultTruncated: false,
  effectiveArguments: null,
  effectiveArgumentsBytes: null,
  effectiveArgumentsTruncated: false,
  stateChanges: null,
  stateChangesBytes: null,
  stateChangesTruncated: false,
}

const ROWS: Record<Kind, object> = {
  plan: PLAN,
  step: STEP,
  thinkAct: THINK_ACT,
  toolCall: TOOL_CALL,
}

const LISTS: Record<Kind, readonly Below[]> = {
  plan: ['agentExecutions'],
  step: ['thinkActs', 'toolCalls', 'subPlans'],
  thinkAct: ['toolCalls'],
  toolCall: ['toolCalls', 'subPlans'],
}

type Sparse = Partial<Record<Below | 'unplaced', TreeNode[]>> & { kind: Kind }

/** Completes a tree in place, and returns it. No recursion: runs may nest deeply. */
export function completeTree(root: PlanNode): PlanNode {
  const waiting: Sparse[] = [root as Sparse]
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    addMissing(node, ROWS[node.kind])
    const totals = node.kind === 'toolCall' ? ONE_CALL : NO_TOTALS
    addMissing(node, { own: totals, cumulative: totals })
    if (node.kind !== 'thinkAct') addMissing(node, { subPlanCount: 0 })
    if (node.kind === 'plan') addMissing(node, { parentActToolCall: null })
    for (const list of LISTS[node.kind]) waiting.push(...((node[list] ??= []) as Sparse[]))
    waiting.push(...((node.unplaced ?? []) as Sparse[]))
  }
  return root
}

/** Completes the changed records of a run in place, and returns the changes. */
export function completeChanges(changes: RunChanges): RunChanges {
  for (const record of changes.changed) addMissing(record, ROWS[record.kind])
  return changes
}

function addMissing(record: object, defaults: object) {
  const fields = record as Record<string, unknown>
  for (const [name, value] of Object.entries(defaults)) {
    if (!(name in fields)) fields[name] = value
  }
}
