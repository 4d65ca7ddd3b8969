/** The run list: the newest page read again and again, older pages on demand. */
import { shallowRef } from 'vue'
import { listRuns } from '../api/client'
import type { Failure } from '../api/outcome'
import { activityOf } from '../lineage/activity'
import { appendPage, NO_RUNS, refreshPage } from '../lineage/run-pages'
import { retryDelay, usePolling } from './polling'

const PAGE = 50
/** The API's longest page. */
const LONGEST_PAGE = 500
const DELAY_ACTIVE = 2_000
/** Also an idle list looks for new runs: somebody may have just started their first. */
const DELAY_IDLE = 5_000

export function useRunList() {
  const runs = shallowRef(NO_RUNS)
  const loaded = shallowRef(false)
  const loadingMore = shallowRef(false)
  const failure = shallowRef<Failure | null>(null)
  const answeredAt = shallowRef(0)
  let failures = 0

  async function ask(): Promise<number | null> {
    const wanted = Math.min(Math.max(PAGE, runs.value.items.length), LONGEST_PAGE)
    const answer = await listRuns(wanted)
    if (!answer.ok) {
      failure.value = answer.failure
      failures += 1
      return retryDelay(failures)
    }
    runs.value = refreshPage(runs.value, answer.value)
    loaded.value = true
    failure.value = null
    failures = 0
    answeredAt.value = Date.now()
    const active = runs.value.items.some((run) => activityOf(run.status) === 'active')
    return active ? DELAY_ACTIVE : DELAY_IDLE
  }

  async function loadMore() {
    const cursor = runs.value.nextCursor
    if (cursor === null || loadingMore.value) return
    loadingMore.value = true
    const answer = await listRuns(PAGE, cursor)
    loadingMore.value = false
    if (!answer.ok) failure.value = answer.failure
    // A refresh in between may have moved the end of the list.
    else if (runs.value.nextCursor === cursor) runs.value = appendPage(runs.value, answer.value)
  }

  const { askNow } = usePolling(ask)
  return { runs, loaded, loadingMore, failure, answeredAt, askNow, loadMore }
}
