/** A run that is read before its page is opened, while a reader points at its link. */
import type { QueryClient } from '@tanstack/vue-query'
import { readRun, readTree } from './client'
import { askAhead, takeAhead } from './server-state'
import type { Run } from './shapes'

/** A run with more tool calls is megabytes, which a reader who only passes by should not load. */
const MOST_CALLS = 500

const runKey = (rootPlanId: string) => ['run', rootPlanId]
const treeKey = (rootPlanId: string) => ['tree', rootPlanId]

export function readRunAhead(client: QueryClient, { rootPlanId, toolCalls }: Run): void {
  askAhead(client, runKey(rootPlanId), () => readRun(rootPlanId))
  if (toolCalls > MOST_CALLS) return
  askAhead(client, treeKey(rootPlanId), () => readTree(rootPlanId))
}

/** Reads a run and its tree, unless they were read ahead. */
export function takeRun(client: QueryClient, rootPlanId: string) {
  return {
    run: takeAhead(client, runKey(rootPlanId), () => readRun(rootPlanId)),
    tree: takeAhead(client, treeKey(rootPlanId), () => readTree(rootPlanId)),
  }
}
