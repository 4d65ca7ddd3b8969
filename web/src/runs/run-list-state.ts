/** The run list: the newest runs read again and again, older ones on demand. */
import { useQueryClient } from '@tanstack/vue-query'
import { computed, shallowRef, watch, type Ref } from 'vue'
import { activityOf } from '../api/activity'
import { listRuns, readRunHistogram } from '../api/client'
import type { Failure, Outcome } from '../api/outcome'
import { useServerState } from '../api/server-state'
import type { Run, RunOrder } from '../api/shapes'
import { orderOf, type Sorting } from './run-columns'
import { askFor, type RunFilters } from './run-filters'
import {
  appendPage,
  below,
  NO_RUNS,
  newerThan,
  refreshPage,
  updatePage,
  worthReading,
} from './run-pages'

const PAGE = 50
/** The API's longest page. */
const LONGEST_PAGE = 500
const DELAY_ACTIVE = 2_000
/** An idle list also looks for new runs: a first one may have just started. */
const DELAY_IDLE = 5_000

/** Which runs are listed, and in which order; undefined is the API's own. */
interface Wanted {
  filters: RunFilters
  order: RunOrder | undefined
}

interface Listed extends Wanted {
  loaded: typeof NO_RUNS
  /** The latest runs when a sorted list was loaded, and now. */
  latest: { before: readonly Run[]; now: readonly Run[] }
}

/** The order is left out by default, so that a plain list has a plain address. */
function queryOf({ filters, order }: Wanted) {
  return { ...askFor(filters, Date.now()), ...(order === undefined ? {} : { sort: order }) }
}

/** Reads a list, and of a sorted one also the latest runs: its first page need not have them. */
async function readList(
  wanted: Wanted,
  limit: number,
  before: () => Listed | undefined,
): Promise<Outcome<Listed>> {
  const isSorted = wanted.order !== undefined
  const [answer, latest] = await Promise.all([
    listRuns({ ...queryOf(wanted), limit }),
    isSorted ? listRuns({ ...askFor(wanted.filters, Date.now()), limit: PAGE }) : null,
  ])
  if (!answer.ok) return answer
  if (latest?.ok === false) return latest
  const fresh = answer.value
  const now = latest?.value.items ?? fresh.items
  // Read only now: a further page may have been loaded meanwhile.
  const shown = before()
  const value: Listed = shown
    ? {
        ...shown,
        loaded: isSorted ? updatePage(shown.loaded, fresh) : refreshPage(shown.loaded, fresh),
        latest: { before: shown.latest.before, now },
      }
    : { ...wanted, loaded: fresh, latest: { before: now, now } }
  return { ok: true, value }
}

/** @param first How many runs to begin with: more than a page after a return to a longer list. */
export function useRunList(
  filters: Ref<RunFilters>,
  sorting: Ref<Sorting | null> = shallowRef(null),
  first = PAGE,
) {
  const client = useQueryClient()
  const wanted = computed<Wanted>(() => ({
    filters: filters.value,
    order: orderOf(sorting.value),
  }))
  const keyOf = ({ filters, order }: Wanted) => ['runs', filters, order ?? null]
  const least = Math.min(Math.max(PAGE, first), LONGEST_PAGE)
  /** Whether the next answer replaces the list, instead of updating it. */
  let startsAnew = false

  const { answer, failure, answeredAt, isStale, askNow } = useServerState<Listed>({
    key: () => keyOf(wanted.value),
    ask: () => {
      const asked = wanted.value
      const isNew = startsAnew
      startsAnew = false
      const before = () => (isNew ? undefined : client.getQueryData<Listed>(keyOf(asked)))
      const limit = worthReading(before()?.loaded ?? NO_RUNS, before() ? PAGE : least, LONGEST_PAGE)
      return readList(asked, limit, before)
    },
    again: ({ loaded }) =>
      loaded.items.some((run) => activityOf(run.status) === 'active') ? DELAY_ACTIVE : DELAY_IDLE,
  })
  const histogram = useServerState({
    key: () => ['run-histogram', filters.value],
    ask: () => {
      const query = askFor(filters.value, Date.now())
      // Otherwise the intervals would follow from the last run, and the chart ends now.
      return readRunHistogram({
        ...query,
        to: query.to ?? (query.from ? new Date().toISOString() : null),
      })
    },
  })
  /** The runs that may change what is counted, with their statuses. */
  const counted = computed(() => {
    if (!answer.value || isStale.value) return null
    const { loaded, latest } = answer.value
    const states = [...latest.now, ...loaded.items.slice(0, PAGE)]
    return states.map((run) => `${run.rootPlanId} ${run.status}`).join()
  })
  watch(counted, (now, before) => {
    if (now !== null && before !== null) histogram.askNow()
  })

  const loaded = computed(() => answer.value?.loaded ?? NO_RUNS)
  /** Above which run new ones wait, so that nothing moves under a reader. */
  const topId = shallowRef<string | null>(null)
  watch(wanted, () => (topId.value = null))
  const isSorted = computed(() => answer.value?.order !== undefined)
  const shown = computed(() => below(loaded.value, topId.value))
  const waiting = computed(() => {
    if (!answer.value || !isSorted.value) return shown.value.waiting
    const { before, now } = answer.value.latest
    return newerThan(before, now, loaded.value.items).length
  })

  const loadingMore = shallowRef(false)
  const moreFailure = shallowRef<Failure | null>(null)

  async function loadMore() {
    const list = answer.value
    const cursor = loaded.value.nextCursor
    if (list === null || cursor === null || loadingMore.value || isStale.value) return
    loadingMore.value = true
    const next = await listRuns({ ...queryOf(list), limit: PAGE, cursor })
    loadingMore.value = false
    moreFailure.value = next.ok ? null : next.failure
    if (!next.ok) return
    client.setQueryData<Listed>(keyOf(list), (now) =>
      // A refresh in between may have moved the end of the list.
      now?.loaded.nextCursor === cursor
        ? { ...now, loaded: appendPage(now.loaded, next.value) }
        : now,
    )
  }

  /** Lets new runs wait, or in. A sorted list keeps its runs until the reader wants new ones. */
  function hold(isHeld: boolean) {
    if (!isHeld || isSorted.value) topId.value = null
    else topId.value ??= loaded.value.items[0]?.rootPlanId ?? null
  }

  /** Shows the runs that wait. */
  function showNew() {
    topId.value = null
    if (!isSorted.value) return
    startsAnew = true
    askNow()
  }

  return {
    runs: computed(() => shown.value.runs),
    waiting,
    /** The start of the next page; null at the end. */
    nextCursor: computed(() => loaded.value.nextCursor),
    /** How far back the search reached, if it found little. */
    searchedBackTo: computed(() => loaded.value.searchedBackTo),
    /** Whether it answers a search whose index is still being built. */
    isIndexing: computed(
      () => Boolean(answer.value?.filters.text) && loaded.value.indexedUpTo === null,
    ),
    /** The filters of the loaded runs; null while none are. */
    loadedFor: computed(() => answer.value?.filters ?? null),
    isStale,
    /** How many runs match, in total and over time; null until it is known. */
    histogram: histogram.answer,
    loadingMore,
    failure: computed(() => failure.value ?? moreFailure.value),
    answeredAt,
    askNow,
    loadMore,
    hold,
    showNew,
  }
}
