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
} from './shapes'

const ZERO: NodeTotals = {
  inputTokens: 0,
  outputTokens: 0,
  costUsd: 0,
  unpricedCalls: 0,
  toolCalls: 0,
  failures: 0,
}
const ONE: NodeTotals = { ...ZERO, toolCalls: 1 }
const NO_TOTALS = { own: ZERO, cumulative: ZERO }
const ONE_CALL = { own: ONE, cumulative: ONE }

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

/** The defaults of a changed record, and those of a record of a tree. */
const ROWS: Record<Kind, object> = {
  plan: PLAN,
  step: STEP,
  thinkAct: THINK_ACT,
  toolCall: TOOL_CALL,
}
const NODES: Record<Kind, object> = {
  plan: { ...PLAN, ...NO_TOTALS, subPlanCount: 0, parentActToolCall: null },
  step: { ...STEP, ...NO_TOTALS, subPlanCount: 0 },
  thinkAct: { ...THINK_ACT, ...NO_TOTALS },
  toolCall: { ...TOOL_CALL, ...ONE_CALL, subPlanCount: 0 },
}

const LISTS: Record<Kind, readonly Below[]> = {
  plan: ['agentExecutions'],
  step: ['thinkActs', 'toolCalls', 'subPlans'],
  thinkAct: ['toolCalls'],
  toolCall: ['toolCalls', 'subPlans'],
}

type Sparse = Partial<Record<Below | 'unplaced', Sparse[]>> & { kind: Kind }

/** Returns a tree with all fields. No recursion: runs may nest deeply. */
export function completeTree(root: PlanNode): PlanNode {
  const whole = completeNode(root as unknown as Sparse)
  const waiting = [whole]
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    for (const list of LISTS[node.kind]) waiting.push(...completeList(node, list))
    if (node.unplaced) waiting.push(...completeList(node, 'unplaced'))
  }
  return whole as unknown as PlanNode
}

function completeList(node: Sparse, list: Below | 'unplaced'): Sparse[] {
  return (node[list] = (node[list] ?? []).map(completeNode))
}

/** Beginning with the defaults takes a fifth of the time of adding the missing ones to a node. */
function completeNode(node: Sparse): Sparse {
  return { ...NODES[node.kind], ...node }
}

/** Returns the changes of a run, each changed record with all fields. */
export function completeChanges(changes: RunChanges): RunChanges {
  const changed = changes.changed.map((record) => ({ ...ROWS[record.kind], ...record }))
  return { ...changes, changed } as RunChanges
}
