/** The run list: the newest runs read again and again, older ones on demand. */
import { computed, shallowRef, watch, type Ref } from 'vue'
import { activityOf } from '../api/activity'
import { listRuns } from '../api/client'
import type { Failure } from '../api/outcome'
import { retryDelay, usePolling } from '../page/polling'
import { askFor, type RunFilters } from './run-filters'
import { appendPage, below, NO_RUNS, refreshPage, worthReading } from './run-pages'

const PAGE = 50
/** The API's longest page. */
const LONGEST_PAGE = 500
const DELAY_ACTIVE = 2_000
/** An idle list also looks for new runs: a first one may have just started. */
const DELAY_IDLE = 5_000

/** @param first How many runs to begin with: more than a page after a return to a longer list. */
export function useRunList(filters: Ref<RunFilters>, first = PAGE) {
  const loaded = shallowRef(NO_RUNS)
  /** Whose runs are loaded; null while none are. */
  const loadedFor = shallowRef<RunFilters | null>(null)
  const loadingMore = shallowRef(false)
  const failure = shallowRef<Failure | null>(null)
  const answeredAt = shallowRef(0)
  /** Above which run new ones wait, so that nothing moves under a reader. */
  const topId = shallowRef<string | null>(null)
  const shown = computed(() => below(loaded.value, topId.value))
  const least = Math.min(Math.max(PAGE, first), LONGEST_PAGE)
  let failures = 0

  async function ask(): Promise<number | null> {
    const wanted = filters.value
    const isSame = loadedFor.value === wanted
    const limit = isSame ? worthReading(loaded.value, PAGE, LONGEST_PAGE) : least
    const answer = await listRuns({ ...askFor(wanted, Date.now()), limit })
    // The filters have changed; the change has started another request.
    if (wanted !== filters.value) return 0
    if (!answer.ok) {
      failure.value = answer.failure
      failures += 1
      return retryDelay(failures)
    }
    if (!isSame) topId.value = null
    loaded.value = isSame ? refreshPage(loaded.value, answer.value) : answer.value
    loadedFor.value = wanted
    failure.value = null
    failures = 0
    answeredAt.value = Date.now()
    const active = loaded.value.items.some((run) => activityOf(run.status) === 'active')
    return active ? DELAY_ACTIVE : DELAY_IDLE
  }

  async function loadMore() {
    const cursor = loaded.value.nextCursor
    const wanted = loadedFor.value
    if (cursor === null || wanted === null || loadingMore.value) return
    loadingMore.value = true
    const answer = await listRuns({ ...askFor(wanted, Date.now()), limit: PAGE, cursor })
    loadingMore.value = false
    if (wanted !== loadedFor.value) return
    if (!answer.ok) failure.value = answer.failure
    // A refresh in between may have moved the end of the list.
    else if (loaded.value.nextCursor === cursor) {
      loaded.value = appendPage(loaded.value, answer.value)
    }
  }

  /** Lets new runs wait, or in. */
  function hold(isHeld: boolean) {
    if (!isHeld) topId.value = null
    else topId.value ??= loaded.value.items[0]?.rootPlanId ?? null
  }

  const { askNow } = usePolling(ask)
  watch(filters, askNow)
  return {
    runs: computed(() => shown.value.runs),
    waiting: computed(() => shown.value.waiting),
    /** The start of the next page; null at the end. */
    nextCursor: computed(() => loaded.value.nextCursor),
    /** How far back the search reached, if it found little. */
    searchedBackTo: computed(() => loaded.value.searchedBackTo),
    loadedFor,
    loadingMore,
    failure,
    answeredAt,
    askNow,
    loadMore,
    hold,
  }
}
