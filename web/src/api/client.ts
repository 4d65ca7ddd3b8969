/** The questions that the viewer asks the API. */
import createClient from 'openapi-fetch'
import { completeTree } from './complete'
import { takeFirstAnswer } from './first-answers'
import { outcomeOf, type Outcome } from './outcome'
import type { paths } from './schema'
import type {
  Caller,
  ConversationPage,
  Erasure,
  Key,
  Lease,
  NewKey,
  Overview,
  PlanNode,
  RecordMatch,
  RunDiff,
  RunFacets,
  RunHistogram,
  RunPage,
  RunSearch,
  Scope,
  SingleRun,
  SpanPage,
  SpendOf,
  StepNode,
  ToolHistory,
  ToolStatsList,
  TurnPlace,
  TurnsPage,
} from './shapes'

let onNotIdentified = () => {}

/** Sets the function to call if the server answers that the reader is not signed in. */
export function tellNotIdentified(hear: () => void) {
  onNotIdentified = hear
}

const client = createClient<paths>({
  fetch: async (request) => {
    // Looked up at each call, so that a replaced fetch (a test, a wrapper) is used.
    const response = await (takeFirstAnswer(request) ?? globalThis.fetch(request))
    if (response.status === 401 && request.method === 'GET') onNotIdentified()
    return response
  },
})

/** Reads who the reader is to the server. */
export function readCaller(): Promise<Outcome<Caller>> {
  return outcomeOf(client.GET('/api/sign-in'))
}

export function signIn(key: string): Promise<Outcome<Caller>> {
  return outcomeOf(client.POST('/api/sign-in', { body: { key } }))
}

/** Signs out. The answer has no body. */
export async function signOut(): Promise<boolean> {
  try {
    const { response } = await client.DELETE('/api/sign-in')
    return response.ok || response.status === 401
  } catch {
    return false
  }
}

/** Lists the project's keys, including revoked ones. */
export function listKeys(): Promise<Outcome<{ items: Key[] }>> {
  return outcomeOf(client.GET('/api/keys'))
}

/** Creates a key. Only this answer has its secret. */
export function createKey(name: string, scopes: Scope[]): Promise<Outcome<NewKey>> {
  return outcomeOf(client.POST('/api/keys', { body: { name, scopes } }))
}

export function revokeKey(keyId: string): Promise<Outcome<null>> {
  return withoutBody(client.DELETE('/api/keys/{keyId}', { params: { path: { keyId } } }))
}

type RunQuery = NonNullable<paths['/api/runs']['get']['parameters']['query']>

export function listRuns(query: RunQuery): Promise<Outcome<RunPage>> {
  return outcomeOf(client.GET('/api/runs', { params: { query } }))
}

type HistogramQuery = NonNullable<paths['/api/runs/histogram']['get']['parameters']['query']>

/** Counts the runs that match, in total and over time. */
export function readRunHistogram(query: HistogramQuery): Promise<Outcome<RunHistogram>> {
  return outcomeOf(client.GET('/api/runs/histogram', { params: { query } }))
}

type FacetQuery = NonNullable<paths['/api/runs/facets']['get']['parameters']['query']>

/** Counts the values that matching runs have. */
export function readRunFacets(query: FacetQuery): Promise<Outcome<RunFacets>> {
  return outcomeOf(client.GET('/api/runs/facets', { params: { query } }))
}

type OverviewQuery = NonNullable<paths['/api/overview']['get']['parameters']['query']>

/** Reads how the runs of a period went. */
export function readOverview(query: OverviewQuery): Promise<Outcome<Overview>> {
  return outcomeOf(client.GET('/api/overview', { params: { query } }))
}

type SpendQuery = NonNullable<paths['/api/spend']['get']['parameters']['query']>

/** Reads what model calls used and cost. */
export function readSpend(query: SpendQuery): Promise<Outcome<{ items: SpendOf[] }>> {
  return outcomeOf(client.GET('/api/spend', { params: { query } }))
}

/** Finds the records that an id may mean. */
export function findRecords(id: string): Promise<Outcome<{ items: RecordMatch[] }>> {
  return outcomeOf(client.GET('/api/find', { params: { query: { id } } }))
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
export function readToolStats(query: StatsQuery): Promise<Outcome<ToolStatsList>> {
  return outcomeOf(client.GET('/api/stats/tools', { params: { query } }))
}

export function readToolHistory(name: string, query: StatsQuery): Promise<Outcome<ToolHistory>> {
  const params = { path: { name }, query }
  return outcomeOf(client.GET('/api/stats/tools/{name}', { params }))
}

/** Finds the records of a run that contain words. */
export function searchRun(rootPlanId: string, q: string): Promise<Outcome<RunSearch>> {
  const params = { path: { rootPlanId }, query: { q } }
  return outcomeOf(client.GET('/api/runs/{rootPlanId}/search', { params }))
}

type ConversationQuery = NonNullable<paths['/api/sessions']['get']['parameters']['query']>

/** Lists conversations, latest activity first. */
export function listConversations(query: ConversationQuery): Promise<Outcome<ConversationPage>> {
  return outcomeOf(client.GET('/api/sessions', { params: { query } }))
}

interface TurnQuery {
  limit?: number
  cursor?: string | null
}

/** Reads a conversation with a page of its turns, earliest first. */
export function readConversation(sessionId: string, query: TurnQuery): Promise<Outcome<TurnsPage>> {
  const params = { path: { sessionId }, query }
  return outcomeOf(client.GET('/api/sessions/{sessionId}', { params }))
}

/** Deletes all runs of a conversation. */
export function deleteConversation(sessionId: string): Promise<Outcome<Erasure>> {
  return outcomeOf(client.DELETE('/api/sessions/{sessionId}', { params: { path: { sessionId } } }))
}

/** Finds the place of a run in its conversation. */
export function readTurnPlace(rootPlanId: string): Promise<Outcome<TurnPlace>> {
  const params = { path: { rootPlanId } }
  return outcomeOf(client.GET('/api/runs/{rootPlanId}/turn', { params }))
}

export function readRun(rootPlanId: string): Promise<Outcome<SingleRun>> {
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

/** Lists the leases of those who left something open in a run, or may have. */
export function listLeases(rootPlanId: string): Promise<Outcome<{ items: Lease[] }>> {
  return outcomeOf(
    client.GET('/api/runs/{rootPlanId}/leases', { params: { path: { rootPlanId } } }),
  )
}

/** Reads a tree with the beginnings of results; as a blob, which takes a browser a third of the time. */
export function readTree(planId: string): Promise<Outcome<PlanNode>> {
  const params = { path: { planId }, query: { payloads: 'excerpt' as const } }
  return outcomeOf(
    client
      .GET('/api/plans/{planId}/tree', { params, parseAs: 'blob' })
      .then(async ({ data, ...rest }) =>
        data ? { ...rest, data: completeTree(JSON.parse(await data.text()) as PlanNode) } : rest,
      ),
  )
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

/** Reads one whole step. No endpoint returns a step: its plan alone, with whole payloads, contains it. */
export async function readStep(planId: string, stepId: string): Promise<Outcome<StepNode>> {
  const params = { path: { planId }, query: { depth: 1, payloads: 'full' as const } }
  const plan = await outcomeOf(client.GET('/api/plans/{planId}/tree', { params }))
  if (!plan.ok) return plan
  const step = plan.value.agentExecutions.find((each) => each.stepId === stepId)
  if (step) return { ok: true, value: step }
  return { ok: false, failure: { kind: 'notFound', detail: '' } }
}

/** Asks for a run to be cancelled; whichever process runs it does so. */
export function cancelRun(rootPlanId: string) {
  const params = { path: { rootPlanId } }
  return outcomeOf(client.POST('/api/runs/{rootPlanId}/cancel', { params }))
}

export function deleteRun(rootPlanId: string): Promise<Outcome<null>> {
  const params = { path: { rootPlanId } }
  return withoutBody(client.DELETE('/api/runs/{rootPlanId}', { params }))
}

/** Waits for an answer that has no body. */
function withoutBody(asking: Promise<{ error?: unknown; response: Response }>) {
  return outcomeOf<null>(
    asking.then(({ error, response }) =>
      response.ok ? { data: null, response } : { error, response },
    ),
  )
}
