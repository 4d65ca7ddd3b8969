/** A run that is read before its page is opened, while a reader points at its link. */
import type { QueryClient } from '@tanstack/vue-query'
import { readRun, readTree } from './client'
import { prefetch, takePrefetched } from './server-state'
import type { Run } from './shapes'

/** A run with more tool calls is megabytes, which a reader who only passes by should not load. */
const MOST_CALLS = 500

const runKey = (rootPlanId: string) => ['run', rootPlanId]
const treeKey = (rootPlanId: string) => ['tree', rootPlanId]

export function prefetchRun(client: QueryClient, { rootPlanId, toolCalls }: Run): void {
  prefetch(client, runKey(rootPlanId), () => readRun(rootPlanId))
  if (toolCalls > MOST_CALLS) return
  prefetch(client, treeKey(rootPlanId), () => readTree(rootPlanId))
}

/** Reads a run and its tree, unless they were prefetched. */
export function takeRun(client: QueryClient, rootPlanId: string) {
  return {
    run: takePrefetched(client, runKey(rootPlanId), () => readRun(rootPlanId)),
    tree: takePrefetched(client, treeKey(rootPlanId), () => readTree(rootPlanId)),
  }
}
