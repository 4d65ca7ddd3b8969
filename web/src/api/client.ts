/** The questions that the viewer asks the API. */
import createClient from 'openapi-fetch'
import { outcomeOf, type Outcome } from './outcome'
import type { paths } from './schema'
import type { PlanNode, Run, RunPage, StepNode } from './shapes'

// Looked up at each call, so that whoever replaces fetch (a test, a wrapper) is heard.
const client = createClient<paths>({ fetch: (request) => globalThis.fetch(request) })

export function listRuns(limit: number, cursor?: string | null): Promise<Outcome<RunPage>> {
  return outcomeOf(client.GET('/api/runs', { params: { query: { limit, cursor } } }))
}

export function readRun(rootPlanId: string): Promise<Outcome<Run>> {
  return outcomeOf(client.GET('/api/runs/{rootPlanId}', { params: { path: { rootPlanId } } }))
}

export function readTree(planId: string): Promise<Outcome<PlanNode>> {
  return outcomeOf(client.GET('/api/plans/{planId}/tree', { params: { path: { planId } } }))
}

export function readPlan(planId: string) {
  return outcomeOf(client.GET('/api/plans/{planId}', { params: { path: { planId } } }))
}

export function readThinkAct(thinkActId: string) {
  return outcomeOf(client.GET('/api/think-acts/{thinkActId}', { params: { path: { thinkActId } } }))
}

export function readToolCall(toolCallId: string) {
  return outcomeOf(client.GET('/api/tool-calls/{toolCallId}', { params: { path: { toolCallId } } }))
}

/** Reads one step whole. There is no endpoint for a step: its plan alone, payloads whole, has it. */
export async function readStep(planId: string, stepId: string): Promise<Outcome<StepNode>> {
  const params = { path: { planId }, query: { depth: 1, payloads: 'full' as const } }
  const plan = await outcomeOf(client.GET('/api/plans/{planId}/tree', { params }))
  if (!plan.ok) return plan
  const step = plan.value.agentExecutions.find((each) => each.stepId === stepId)
  if (step) return { ok: true, value: step }
  return { ok: false, failure: { kind: 'notFound', detail: '' } }
}
