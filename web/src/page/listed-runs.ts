/** The runs of the list that a reader came from, so that they can go to the next one. */
import { listRuns } from '../api/client'
import type { Run } from '../api/shapes'

let listed: readonly string[] = []

/** Remembers the listed runs in their order. */
export function rememberListed(runs: readonly Run[]): void {
  listed = runs.map((run) => run.rootPlanId)
}

export interface Neighbours {
  /** The run above in the list, which is newer unless the list is sorted otherwise. */
  previous: string | null
  next: string | null
}

/** A newer run is looked for among so many. */
const MOST_NEWER = 100

/** Finds the neighbours of a run in the list that was left; without a list, by start. */
export async function neighboursOf(run: Run): Promise<Neighbours> {
  const index = listed.indexOf(run.rootPlanId)
  if (index >= 0) {
    return { previous: listed[index - 1] ?? null, next: listed[index + 1] ?? null }
  }
  if (run.startedAt === null) return { previous: null, next: null }
  const [older, newer] = await Promise.all([
    listRuns({ to: run.startedAt, limit: 2 }),
    listRuns({ from: run.startedAt, limit: MOST_NEWER }),
  ])
  const others = (answer: typeof older) =>
    answer.ok ? answer.value.items.filter((each) => each.rootPlanId !== run.rootPlanId) : []
  const isWhole = newer.ok && newer.value.nextCursor === null
  return {
    previous: isWhole ? (others(newer).at(-1)?.rootPlanId ?? null) : null,
    next: others(older)[0]?.rootPlanId ?? null,
  }
}
