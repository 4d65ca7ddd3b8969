/** The questions that the viewer asks the API. */
import createClient from 'openapi-fetch'
import { outcomeOf, type Outcome } from './outcome'
import type { paths } from './schema'
import type {
  PlanNode,
  Run,
  RunDiff,
  RunPage,
  SpanPage,
  StepNode,
  ToolHistory,
  ToolStats,
} from './shapes'

// Looked up at each call, so that whoever replaces fetch (a test, a wrapper) is heard.
const client = createClient<paths>({ fetch: (request) => globalThis.fetch(request) })

type RunQuery = NonNullable<paths['/api/runs']['get']['parameters']['query']>

export function listRuns(query: RunQuery): Promise<Outcome<RunPage>> {
  return outcomeOf(client.GET('/api/runs', { params: { query } }))
}

/** Compares two runs. */
export function diffRuns(a: string, b: string): Promise<Outcome<RunDiff>> {
  return outcomeOf(client.GET('/api/runs/{a}/diff/{b}', { params: { path: { a, b } } }))
}

interface StatsQuery {
  from: string | null
  to: string | null
}

/** Reads how the calls of every tool went. */
export async function readToolStats(query: StatsQuery): Promise<Outcome<ToolStats[]>> {
  const answer = await outcomeOf(client.GET('/api/stats/tools', { params: { query } }))
  return answer.ok ? { ok: true, value: answer.value.items } : answer
}

export function readToolHistory(name: string, query: StatsQuery): Promise<Outcome<ToolHistory>> {
  const params = { path: { name }, query }
  return outcomeOf(client.GET('/api/stats/tools/{name}', { params }))
}

export function readRun(rootPlanId: string): Promise<Outcome<Run>> {
  return outcomeOf(client.GET('/api/runs/{rootPlanId}', { params: { path: { rootPlanId } } }))
}

interface SpanQuery {
  recordId?: string
  limit: number
  cursor?: string | null
}

/** Lists the original spans of a run, or of one of its records. */
export function listSpans(rootPlanId: string, query: SpanQuery): Promise<Outcome<SpanPage>> {
  const params = { path: { rootPlanId }, query }
  return outcomeOf(client.GET('/api/runs/{rootPlanId}/spans', { params }))
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
