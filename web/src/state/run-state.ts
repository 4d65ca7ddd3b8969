/** One run and its tree, read again while something in it may still change. */
import { computed, shallowRef } from 'vue'
import { readRun, readTree } from '../api/client'
import type { Failure } from '../api/outcome'
import type { PlanNode, Run } from '../api/shapes'
import { activityOf, treeActivity, type Activity } from '../lineage/activity'
import { buildForest, EMPTY_FOREST } from '../lineage/rows'
import { retryDelay, usePolling } from './polling'

const DELAYS: Record<Activity, number | null> = { active: 1_000, uncertain: 5_000, ended: null }

export function useRun(rootPlanId: string) {
  const run = shallowRef<Run | null>(null)
  const tree = shallowRef<PlanNode | null>(null)
  const failure = shallowRef<Failure | null>(null)
  const answeredAt = shallowRef(0)
  let failures = 0
  /** The revision that the shown tree holds at least. */
  let revision = -1

  const forest = computed(() => (tree.value ? buildForest(tree.value) : EMPTY_FOREST))
  const activity = computed<Activity>(() => {
    const ofTree = tree.value ? treeActivity(tree.value) : 'ended'
    const ofRun = run.value ? activityOf(run.value.status) : 'ended'
    if (ofTree === 'active' || ofRun === 'active') return 'active'
    return ofTree === 'uncertain' || ofRun === 'uncertain' ? 'uncertain' : 'ended'
  })

  async function ask(): Promise<number | null> {
    const answer = await readRun(rootPlanId)
    if (!answer.ok) return failed(answer.failure)
    if (answer.value.revision !== revision) {
      const treeAnswer = await readTree(rootPlanId)
      if (!treeAnswer.ok) return failed(treeAnswer.failure)
      tree.value = treeAnswer.value
      revision = answer.value.revision
    }
    run.value = answer.value
    failure.value = null
    failures = 0
    answeredAt.value = Date.now()
    return DELAYS[activity.value]
  }

  function failed(reason: Failure): number | null {
    failure.value = reason
    failures += 1
    return reason.kind === 'notFound' ? null : retryDelay(failures)
  }

  const { askNow } = usePolling(ask)
  return { run, forest, failure, answeredAt, activity, askNow }
}
