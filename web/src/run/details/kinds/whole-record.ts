/** The long strings of a record: the start that the tree carries, and how to load the whole. */
import { readPlan, readStep, readThinkAct, readToolCall } from '../../../api/client'
import type { Outcome } from '../../../api/outcome'
import type { PlanNode, StepNode, ThinkActNode, ToolCallNode } from '../../../api/shapes'
import type { Payload } from '../../../ui/payload/payload-block.vue'

export function planPayload(plan: PlanNode, field: 'userRequest' | 'summary'): Payload {
  return {
    text: plan[field],
    bytes: plan[`${field}Bytes`],
    truncated: plan[`${field}Truncated`],
    loadWhole: async () => pick(await readPlan(plan.planId), (whole) => whole[field]),
  }
}

export function stepPayload(step: StepNode, field: 'request' | 'result'): Payload {
  return {
    text: step[field],
    bytes: step[`${field}Bytes`],
    truncated: step[`${field}Truncated`],
    loadWhole: async () => {
      if (step.planId === null) return GONE
      return pick(await readStep(step.planId, step.stepId), (whole) => whole[field])
    },
  }
}

export function thoughtPayload(thinkAct: ThinkActNode): Payload {
  return {
    text: thinkAct.thought,
    bytes: thinkAct.thoughtBytes,
    truncated: thinkAct.thoughtTruncated,
    loadWhole: async () => pick(await readThinkAct(thinkAct.thinkActId), (whole) => whole.thought),
  }
}

export function callPayload(
  call: ToolCallNode,
  field: 'arguments' | 'effectiveArguments' | 'result' | 'stateChanges',
): Payload {
  return {
    text: call[field],
    bytes: call[`${field}Bytes`],
    truncated: call[`${field}Truncated`],
    loadWhole: async () => pick(await readToolCall(call.toolCallId), (whole) => whole[field]),
  }
}

/** A text that is there whole. */
export function wholeText(text: string): Payload {
  const loadWhole = async () => ({ ok: true, value: text }) as const
  return { text, bytes: null, truncated: false, loadWhole }
}

/** A step whose plan is not known cannot be read by itself. */
const GONE: Outcome<never> = { ok: false, failure: { kind: 'notFound', detail: '' } }

function pick<Whole, Value>(
  answer: Outcome<Whole>,
  of: (whole: Whole) => Value | undefined,
): Outcome<Value | null> {
  return answer.ok ? { ok: true, value: of(answer.value) ?? null } : answer
}
