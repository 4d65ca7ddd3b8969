/** Answers of the API that pages share: cached, and asked for again while they are shown. */
import { keepPreviousData, useQuery, type QueryClient } from '@tanstack/vue-query'
import { computed, type Ref } from 'vue'
import type { Failure, Outcome } from './outcome'

const RETRY = 3_000

interface Question<Answer> {
  /** Identifies the question. Its answer is shown until the next one has been answered. */
  key: () => readonly unknown[]
  ask: () => Promise<Outcome<Answer>>
  /** After how many milliseconds to ask again; false for never. */
  again?: (answer: Answer) => number | false
}

async function answerOf<Answer>(asking: Promise<Outcome<Answer>>): Promise<Answer> {
  const outcome = await asking
  if (outcome.ok) return outcome.value
  throw outcome.failure
}

export function useServerState<Answer>({ key, ask, again }: Question<Answer>) {
  const query = useQuery<Answer, Failure>({
    queryKey: computed(key),
    queryFn: () => answerOf(ask()),
    placeholderData: keepPreviousData,
    // The page shows the failure, and `refetchInterval` asks again.
    retry: false,
    refetchInterval: ({ state }) => {
      if (state.error) return state.error.kind === 'notFound' ? false : RETRY
      return state.data === undefined ? false : (again?.(state.data) ?? false)
    },
    // A server on this machine answers without a network.
    networkMode: 'always',
    // A tree may nest more deeply than a recursion may go.
    structuralSharing: false,
    shallow: true,
  })
  return {
    answer: computed(() => query.data.value ?? null) as Readonly<Ref<Answer | null>>,
    failure: query.error,
    answeredAt: query.dataUpdatedAt,
    /** Whether the answer is that of the question before. */
    isStale: query.isPlaceholderData,
    askNow: () => void query.refetch(),
  }
}

/** Asks before the answer is needed, such as when a link is pointed at. */
export function askAhead<Answer>(
  client: QueryClient,
  key: readonly unknown[],
  ask: () => Promise<Outcome<Answer>>,
): void {
  void client.prefetchQuery({ queryKey: key, queryFn: () => answerOf(ask()), staleTime: 5_000 })
}
