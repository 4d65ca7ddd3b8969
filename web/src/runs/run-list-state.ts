/** The run list: the newest runs read again and again, older ones on demand. */
import { computed, shallowRef, watch, type Ref } from 'vue'
import { activityOf } from '../api/activity'
import { listRuns, readRunHistogram } from '../api/client'
import type { Failure } from '../api/outcome'
import type { Run, RunHistogram, RunOrder } from '../api/shapes'
import { retryDelay, usePolling } from '../page/polling'
import { orderOf, type Sorting } from './run-columns'
import { askFor, type RunFilters } from './run-filters'
import { appendPage, below, NO_RUNS, refreshPage, updatePage, worthReading } from './run-pages'

const PAGE = 50
/** The API's longest page. */
const LONGEST_PAGE = 500
const DELAY_ACTIVE = 2_000
/** An idle list also looks for new runs: a first one may have just started. */
const DELAY_IDLE = 5_000

/** Left out by default, so that a plain list has a plain address. */
function sortedBy(order: RunOrder | undefined): { sort?: RunOrder } {
  return order === undefined ? {} : { sort: order }
}

function stateOf(runs: readonly Run[]): string {
  return runs.map((run) => `${run.rootPlanId} ${run.status}`).join()
}

/** @param first How many runs to begin with: more than a page after a return to a longer list. */
export function useRunList(
  filters: Ref<RunFilters>,
  sorting: Ref<Sorting | null> = shallowRef(null),
  first = PAGE,
) {
  const wanted = computed(() => ({ filters: filters.value, order: orderOf(sorting.value) }))
  const loaded = shallowRef(NO_RUNS)
  /** Whose runs are loaded; null while none are. */
  const loadedFor = shallowRef<typeof wanted.value | null>(null)
  const histogram = shallowRef<RunHistogram | null>(null)
  const loadingMore = shallowRef(false)
  const failure = shallowRef<Failure | null>(null)
  const answeredAt = shallowRef(0)
  /** Above which run new ones wait, so that nothing moves under a reader. */
  const topId = shallowRef<string | null>(null)
  const shown = computed(() => below(loaded.value, topId.value))
  const least = Math.min(Math.max(PAGE, first), LONGEST_PAGE)
  let failures = 0
  /** The runs of the last answer and their statuses; the runs are counted again when it changes. */
  let countedState = ''

  async function ask(): Promise<number | null> {
    const asked = wanted.value
    const isSame = loadedFor.value === asked
    const limit = isSame ? worthReading(loaded.value, PAGE, LONGEST_PAGE) : least
    const query = askFor(asked.filters, Date.now())
    if (!isSame) void count(asked)
    const answer = await listRuns({ ...query, ...sortedBy(asked.order), limit })
    // The filters have changed; the change has started another request.
    if (asked !== wanted.value) return 0
    if (!answer.ok) {
      failure.value = answer.failure
      failures += 1
      return retryDelay(failures)
    }
    if (!isSame) topId.value = null
    const state = stateOf(answer.value.items)
    if (isSame && state !== countedState) void count(asked)
    countedState = state
    if (!isSame) loaded.value = answer.value
    else if (asked.order === undefined) loaded.value = refreshPage(loaded.value, answer.value)
    else loaded.value = updatePage(loaded.value, answer.value)
    loadedFor.value = asked
    failure.value = null
    failures = 0
    answeredAt.value = Date.now()
    const active = loaded.value.items.some((run) => activityOf(run.status) === 'active')
    return active ? DELAY_ACTIVE : DELAY_IDLE
  }

  /** Counts all matching runs; the list does not wait for it. */
  async function count(asked: typeof wanted.value) {
    const query = askFor(asked.filters, Date.now())
    // Otherwise the intervals would follow from the last run, and the chart ends now.
    const to = query.to ?? (query.from ? new Date().toISOString() : null)
    const answer = await readRunHistogram({ ...query, to })
    if (answer.ok && asked.filters === filters.value) histogram.value = answer.value
  }

  async function loadMore() {
    const cursor = loaded.value.nextCursor
    const asked = loadedFor.value
    if (cursor === null || asked === null || loadingMore.value) return
    loadingMore.value = true
    const query = { ...askFor(asked.filters, Date.now()), ...sortedBy(asked.order) }
    const answer = await listRuns({ ...query, limit: PAGE, cursor })
    loadingMore.value = false
    if (asked !== loadedFor.value) return
    if (!answer.ok) failure.value = answer.failure
    // A refresh in between may have moved the end of the list.
    else if (loaded.value.nextCursor === cursor) {
      loaded.value = appendPage(loaded.value, answer.value)
    }
  }

  /** Lets new runs wait, or in. */
  function hold(isHeld: boolean) {
    if (!isHeld || wanted.value.order !== undefined) topId.value = null
    else topId.value ??= loaded.value.items[0]?.rootPlanId ?? null
  }

  const { askNow } = usePolling(ask)
  watch(wanted, askNow)
  return {
    runs: computed(() => shown.value.runs),
    waiting: computed(() => shown.value.waiting),
    /** The start of the next page; null at the end. */
    nextCursor: computed(() => loaded.value.nextCursor),
    /** How far back the search reached, if it found little. */
    searchedBackTo: computed(() => loaded.value.searchedBackTo),
    /** The filters of the loaded runs; null while none are. */
    loadedFor: computed(() => loadedFor.value?.filters ?? null),
    isStale: computed(() => loadedFor.value !== wanted.value),
    /** How many runs match, in total and over time; null until it is known. */
    histogram,
    loadingMore,
    failure,
    answeredAt,
    askNow,
    loadMore,
    hold,
  }
}
