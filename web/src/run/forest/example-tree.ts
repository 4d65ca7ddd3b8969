/** Builders of small trees, for tests. */
import type {
  NodeTotals,
  PlanNode,
  StepNode,
  ThinkActNode,
  ToolCallNode,
  TreeNode,
} from '../../api/shapes'
import { readRecords } from './records'
import { buildForest } from './build-forest'
import type { Forest } from './rows'

const NOTHING: NodeTotals = {
  inputTokens: 0,
  outputTokens: 0,
  costUsd: 0,
  unpricedCalls: 0,
  toolCalls: 0,
  failures: 0,
}

const ALIKE = {
  status: 'succeeded' as const,
  reason: null,
  startedAt: '2026-11-21T22:21:52.462812Z',
  finishedAt: '2026-11-21T22:21:53.462812Z',
  abandonedAt: null,
  durationMs: 1000,
  clockShiftUs: null,
  position: 0,
  masked: null,
  revision: 1,
  error: null,
  own: NOTHING,
  cumulative: NOTHING,
}

export function plan(planId: string, fields: Partial<PlanNode> = {}): PlanNode {
  return {
    ...ALIKE,
    kind: 'plan',
    planId,
    rootPlanId: 'root',
    parentPlanId: null,
    toolCallId: null,
    openedByStepId: null,
    inferred: false,
    inferredFrom: null,
    parentActToolCall: null,
    title: `Plan ${planId}`,
    agentName: 'planner',
    template: null,
    templateVersion: null,
    depth: 0,
    userRequest: 'How was my week?',
    userRequestBytes: 16,
    userRequestTruncated: false,
    summary: null,
    summaryBytes: null,
    summaryTruncated: false,
    agentExecutions: [],
    subPlanCount: 0,
    unplaced: [],
    failureOrigins: [],
    ...fields,
  }
}

export function step(stepId: string, fields: Partial<StepNode> = {}): StepNode {
  return {
    ...ALIKE,
    kind: 'step',
    stepId,
    planId: 'root',
    agentName: `agent ${stepId}`,
    request: 'Look at the week',
    requestBytes: 16,
    requestTruncated: false,
    result: null,
    resultBytes: null,
    resultTruncated: false,
    thinkActs: [],
    toolCalls: [],
    subPlanCount: 0,
    subPlans: [],
    ...fields,
  }
}

export function thinkAct(thinkActId: string, fields: Partial<ThinkActNode> = {}): ThinkActNode {
  return {
    ...ALIKE,
    kind: 'thinkAct',
    thinkActId,
    inferred: false,
    inferredFrom: null,
    stepId: null,
    requestedModel: 'scripted',
    model: 'scripted',
    inputTokens: 120,
    outputTokens: 40,
    costUsd: 0.0004,
    thought: 'I look it up.',
    thoughtBytes: 13,
    thoughtTruncated: false,
    toolCalls: [],
    ...fields,
  }
}

export function toolCall(toolCallId: string, fields: Partial<ToolCallNode> = {}): ToolCallNode {
  return {
    ...ALIKE,
    kind: 'toolCall',
    toolCallId,
    stepId: null,
    thinkActId: null,
    parentToolCallId: null,
    providerCallId: 'call_0',
    continuedPlanId: null,
    inferred: false,
    inferredFrom: null,
    name: `tool_${toolCallId}`,
    toolType: 'STATELESS',
    attempt: 1,
    forgedArguments: [],
    shortCircuitedBy: null,
    stillRunning: null,
    agentKey: null,
    agentEndSequence: null,
    arguments: '{"patient": "p-1"}',
    argumentsBytes: 18,
    argumentsTruncated: false,
    effectiveArguments: null,
    effectiveArgumentsBytes: null,
    effectiveArgumentsTruncated: false,
    result: 'ok',
    resultBytes: 2,
    resultTruncated: false,
    stateChanges: null,
    stateChangesBytes: null,
    stateChangesTruncated: false,
    subPlanCount: 0,
    subPlans: [],
    toolCalls: [],
    ...fields,
  }
}

/** A root plan whose one call opened a sub-plan with a call of its own: six levels and a bit. */
export function nested(unplaced: TreeNode[] = []): PlanNode {
  const subPlan = plan('sub', {
    parentPlanId: 'root',
    toolCallId: 'opener',
    parentActToolCall: {
      toolCallId: 'opener',
      name: 'medication_check',
      arguments: '{"patient": "p-1"}',
      status: 'succeeded',
    },
    agentExecutions: [step('sub-step', { toolCalls: [toolCall('inner')] })],
  })
  const opener = toolCall('opener', {
    name: 'medication_check',
    subPlanCount: 1,
    subPlans: [subPlan],
  })
  const rounds = [thinkAct('round', { toolCalls: [toolCall('other', { position: 0 }), opener] })]
  return plan('root', { agentExecutions: [step('step', { thinkActs: rounds })], unplaced })
}

/** The forest of a hierarchy whose records name no parents, or not all of them. */
export function forestOf(top: PlanNode): Forest {
  return buildForest(readRecords(withParents(top)), top.planId)
}

/** The same hierarchy, in which each record names the one that it is below, and has a position. */
export function withParents(top: PlanNode): PlanNode {
  const root = { ...top }
  const waiting: TreeNode[] = [root]
  const linked = <Node extends TreeNode>(nodes: readonly Node[], links: Partial<Node>): Node[] =>
    nodes.map((node, position) => {
      const copy = { ...node, position, ...links }
      waiting.push(copy)
      return copy
    })
  for (let node = waiting.pop(); node; node = waiting.pop()) {
    if (node.kind === 'plan') {
      node.agentExecutions = linked(node.agentExecutions, { planId: node.planId })
      node.unplaced = linked((node.unplaced ?? []) as TreeNode[], {}) as PlanNode['unplaced']
    } else if (node.kind === 'step') {
      const { stepId } = node
      node.thinkActs = linked(node.thinkActs, { stepId })
      node.toolCalls = linked(node.toolCalls, { stepId })
      node.subPlans = linked(node.subPlans, { openedByStepId: stepId })
    } else if (node.kind === 'thinkAct') {
      const { stepId, thinkActId } = node
      node.toolCalls = linked(node.toolCalls, { stepId, thinkActId })
    } else {
      const { toolCallId } = node
      node.toolCalls = linked(node.toolCalls, { parentToolCallId: toolCallId })
      node.subPlans = linked(node.subPlans, { toolCallId })
    }
  }
  return root
}
