/** The original spans of a record: whether its run has any, and those of the record on demand. */
import { useInfiniteQuery, type InfiniteData } from '@tanstack/vue-query'
import { computed } from 'vue'
import { listSpans } from '../../api/client'
import type { Failure } from '../../api/outcome'
import { answerOf, useServerState } from '../../api/server-state'
import type { SpanPage } from '../../api/shapes'

const PAGE = 20

export function useRecordSpans(rootPlanId: string, recordId: string) {
  const first = useServerState({
    key: () => ['any-spans', rootPlanId],
    ask: () => listSpans(rootPlanId, { limit: 1 }),
    // A run does not lose its spans.
    fresh: ({ items }) => (items.length > 0 ? Infinity : 0),
  })
  const pages = useInfiniteQuery<
    SpanPage,
    Failure,
    InfiniteData<SpanPage>,
    string[],
    string | null
  >({
    queryKey: ['spans', rootPlanId, recordId],
    queryFn: ({ pageParam }) =>
      answerOf(listSpans(rootPlanId, { recordId, limit: PAGE, cursor: pageParam })),
    initialPageParam: null,
    getNextPageParam: ({ nextCursor }) => nextCursor,
    enabled: false,
    gcTime: 0,
    retry: false,
    networkMode: 'always',
  })
  const loaded = computed(() => pages.data.value?.pages ?? [])
  return {
    any: computed(() => (first.answer.value?.items.length ?? 0) > 0),
    spans: computed(() => loaded.value.flatMap(({ items }) => items)),
    logs: computed(() => loaded.value.flatMap(({ logs }) => logs)),
    loaded: computed(() => pages.data.value !== undefined),
    loading: pages.isFetching,
    failure: pages.error,
    more: pages.hasNextPage,
    /** Loads the first page, or the one after those that are there. */
    load: () => void pages.fetchNextPage({ cancelRefetch: false }),
  }
}
