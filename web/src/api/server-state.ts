/** Answers of the API that pages share: cached, and asked for again while they are shown. */
import { keepPreviousData, useQuery, type QueryClient } from '@tanstack/vue-query'
import { computed, shallowRef, watch, type Ref } from 'vue'
import type { Failure, Outcome } from './outcome'

const RETRY = 3_000
/** For how long a prefetched answer is used. */
const FRESH = 5_000

interface Question<Answer> {
  /** Identifies the question. Its answer is shown until the next one has been answered. */
  key: () => readonly unknown[]
  ask: () => Promise<Outcome<Answer>>
  /** After how many milliseconds to ask again; false for never. */
  again?: (answer: Answer) => number | false
  /** Whether there is something to ask; always by default. */
  wanted?: () => boolean
  /** For how many milliseconds an answer holds wherever it is needed; by default for none. */
  fresh?: (answer: Answer) => number
}

export async function answerOf<Answer>(asking: Promise<Outcome<Answer>>): Promise<Answer> {
  const outcome = await asking
  if (outcome.ok) return outcome.value
  throw outcome.failure
}

export function useServerState<Answer>({ key, ask, again, wanted, fresh }: Question<Answer>) {
  const query = useQuery<Answer, Failure>({
    queryKey: computed(key),
    queryFn: () => answerOf(ask()),
    enabled: wanted ?? true,
    staleTime: ({ state }) => (state.data === undefined ? 0 : (fresh?.(state.data) ?? 0)),
    placeholderData: keepPreviousData,
    // The page shows the failure, and `refetchInterval` asks again.
    retry: false,
    refetchInterval: ({ state }) => {
      if (state.error) return state.error.kind === 'notFound' ? false : RETRY
      return state.data === undefined ? false : (again?.(state.data) ?? false)
    },
    // A server on this machine answers without a network.
    networkMode: 'always',
    refetchOnReconnect: 'always',
    // A tree may nest more deeply than a recursion may go.
    structuralSharing: false,
    shallow: true,
  })
  /** Stays while a question without an answer is asked again: the page must not flicker. */
  const failure = shallowRef<Failure | null>(null)
  watch(
    [query.status, query.error],
    ([status, error]) => {
      if (status !== 'pending') failure.value = error
    },
    { immediate: true },
  )
  return {
    answer: computed(() => query.data.value ?? null) as Readonly<Ref<Answer | null>>,
    failure: failure as Readonly<Ref<Failure | null>>,
    answeredAt: query.dataUpdatedAt,
    /** Whether the answer is that of the question before. */
    isStale: query.isPlaceholderData,
    askNow: () => void query.refetch(),
  }
}

function prefetchOptions<Answer>(key: readonly unknown[], ask: () => Promise<Outcome<Answer>>) {
  return {
    queryKey: key,
    queryFn: () => answerOf(ask()),
    staleTime: FRESH,
    retry: false,
    networkMode: 'always' as const,
    structuralSharing: false,
  }
}

/** Sends a request before its answer is needed, for example when the pointer is over a link. */
export function prefetch<Answer>(
  client: QueryClient,
  key: readonly unknown[],
  ask: () => Promise<Outcome<Answer>>,
): void {
  void client.prefetchQuery(prefetchOptions(key, ask))
}

/** Returns the prefetched answer, once; without one, sends the request. */
export async function takePrefetched<Answer>(
  client: QueryClient,
  key: readonly unknown[],
  ask: () => Promise<Outcome<Answer>>,
): Promise<Outcome<Answer>> {
  try {
    return { ok: true, value: await client.fetchQuery(prefetchOptions(key, ask)) }
  } catch (failure) {
    return { ok: false, failure: failure as Failure }
  } finally {
    client.removeQueries({ queryKey: key, exact: true })
  }
}
