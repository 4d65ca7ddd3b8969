/** One run and its tree, kept up to date while something in it may still change. */
import { useQueryClient } from '@tanstack/vue-query'
import { useEventListener, useRafFn, useTimeoutFn } from '@vueuse/core'
import { computed, shallowRef } from 'vue'
import { activityOf, type Activity } from '../../api/activity'
import { readRun, readTree } from '../../api/client'
import type { Failure } from '../../api/outcome'
import { takeRun } from '../../api/run-prefetch'
import type { PlanNode, RunChanges, SingleRun } from '../../api/shapes'
import { useNow } from '../../ui/now'
import { applyChanges, readRecords, type Records } from '../forest/records'
import { buildForest } from '../forest/build-forest'
import { EMPTY_FOREST, treeActivity, type Forest } from '../forest/rows'
import { retryDelay, usePolling } from './polling'
import { useRunStream } from './run-stream'

/** How often to ask for the run without a stream. */
const DELAYS: Record<Activity, number | null> = { active: 1_000, uncertain: 5_000, ended: null }
/** How often whether the stream still brings everything. */
const CHECK = 15_000
/** How long the stream may take to bring what the server has. */
const GRACE = 2_000
/** How long after a change the run's own figures are asked for. */
const FIGURES = 500
/** How long after its end a run is watched for runs that continue it. */
const LINGER = 600_000
/** After this silence, the shown state is marked as old. */
const SILENCE = 40_000

export function useRun(rootPlanId: string) {
  const run = shallowRef<SingleRun | null>(null)
  const forest = shallowRef<Forest>(EMPTY_FOREST)
  const trouble = shallowRef<Failure | null>(null)
  const answeredAt = shallowRef(0)
  const lookedAtSince = shallowRef(Date.now())
  const now = useNow()
  const client = useQueryClient()
  let failures = 0
  /** The revision that `records` include at least. */
  let revision = -1
  /** The known records; null before the first answer. */
  let records: Records | null = null
  let rootId = rootPlanId
  let unreadSpans = 0
  let mustRead = false
  /** Since when the server is known to have what the stream did not bring yet. */
  let behindSince: number | null = null
  const figures = useTimeoutFn(() => askNow(), FIGURES, { immediate: false })

  const activity = computed<Activity>(() => {
    const ofTree = treeActivity(forest.value)
    const ofRun = run.value ? activityOf(run.value.status) : 'ended'
    if (ofTree === 'active' || ofRun === 'active') return 'active'
    return ofTree === 'uncertain' || ofRun === 'uncertain' ? 'uncertain' : 'ended'
  })
  const isSilent = computed(() => {
    if (answeredAt.value === 0 || activity.value === 'ended') return false
    return now.value - Math.max(answeredAt.value, lookedAtSince.value) > SILENCE
  })
  const failure = computed<Failure | null>(
    () => trouble.value ?? (isSilent.value ? { kind: 'away' } : null),
  )

  /** However many changes arrive in a frame, the forest is built once. */
  const drawing = useRafFn(
    () => {
      if (records) forest.value = buildForest(records, rootId, unreadSpans)
    },
    { immediate: false, once: true },
  )

  const stream = useRunStream(rootPlanId, {
    // After its end, a background agent's report may continue the work in another run.
    wanted: () => records !== null && (activity.value !== 'ended' || hasJustEnded()),
    revision: () => revision,
    changes: onChanges,
    reset: () => {
      mustRead = true
      askNow()
    },
    deleted: () => {
      trouble.value = { kind: 'notFound', detail: '' }
    },
    turned: () => askNow(),
  })

  function hasJustEnded(): boolean {
    const end = run.value?.finishedAt
    return end != null && Date.now() - Date.parse(end) < LINGER
  }

  function onChanges(changes: RunChanges, at: number) {
    answeredAt.value = Date.now()
    behindSince = null
    if (at <= revision || records === null) return
    applyChanges(records, changes)
    revision = at
    drawing.resume()
    if (!figures.isPending.value) figures.start()
  }

  async function ask(): Promise<number | null> {
    // A reader who opens the page waits for both at once.
    const ahead = records === null ? takeRun(client, rootPlanId) : null
    const first = ahead?.tree ?? null
    const answer = await (ahead?.run ?? readRun(rootPlanId))
    if (!answer.ok) return failed(answer.failure)
    unreadSpans = answer.value.unreadSpans
    if (first) run.value = answer.value
    if (first || mustRead || (answer.value.revision > revision && !isComing())) {
      const treeAnswer = await (first ?? readTree(rootPlanId))
      // A run has no root plan before its first projection.
      const hasNoRecords = first && answer.value.behind && !treeAnswer.ok
      if (!treeAnswer.ok && !(hasNoRecords && treeAnswer.failure.kind === 'notFound'))
        return failed(treeAnswer.failure)
      // Asked together with the run, the tree may be the older one of both.
      if (treeAnswer.ok) takeOver(treeAnswer.value, first ? 0 : answer.value.revision)
    }
    run.value = answer.value
    trouble.value = null
    failures = 0
    answeredAt.value = Date.now()
    stream.serverAnswers(true)
    // Its figures are older than the tree that was read with it, or than the stream's last change.
    if (answer.value.revision < revision && !figures.isPending.value) figures.start()
    if (answer.value.revision <= revision) behindSince = null
    else if (!isComing()) return 0
    if (behindSince !== null) return GRACE
    if (answer.value.behind && !answer.value.projectionError) return DELAYS.active
    return stream.isUp() && activity.value !== 'ended' ? CHECK : DELAYS[activity.value]
  }

  /** Whether to wait for the stream to bring what the server has. */
  function isComing(): boolean {
    if (!stream.isUp()) return false
    behindSince ??= Date.now()
    if (Date.now() - behindSince < GRACE) return true
    behindSince = null
    stream.failed()
    return false
  }

  /** Shows a tree that was read, unless the stream has brought a later one meanwhile. */
  function takeOver(top: PlanNode, atLeast: number) {
    mustRead = false
    const read = Math.max(top.revision ?? 0, atLeast)
    if (records !== null && read < revision) return
    revision = read
    records = readRecords(top)
    rootId = top.planId
    forest.value = buildForest(records, rootId, unreadSpans)
  }

  function failed(reason: Failure): number | null {
    trouble.value = reason
    failures += 1
    stream.serverAnswers(false)
    if (reason.kind !== 'notFound') return retryDelay(failures)
    stream.close()
    return null
  }

  useEventListener(document, 'visibilitychange', () => {
    if (!document.hidden) lookedAtSince.value = Date.now()
  })
  const { askNow } = usePolling(ask)
  return { run, forest, failure, answeredAt, activity, askNow }
}
