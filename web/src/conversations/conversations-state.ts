/** The conversations of the list, and the turns of one: pages that are read on demand. */
import { useQueryClient } from '@tanstack/vue-query'
import { computed, shallowRef } from 'vue'
import { listConversations, readConversation } from '../api/client'
import type { Failure } from '../api/outcome'
import { useServerState } from '../api/server-state'
import type { Conversation, Turn } from '../api/shapes'
import {
  ALL_TIME,
  boundsOf,
  isAllTime,
  RANGE_PARAMETERS,
  readRange,
  writeRange,
  type TimeRange,
} from '../lib/time-range'
import { useAddress, useAddressOfMany } from '../page/address'

const AGAIN_ACTIVE = 2_000
const AGAIN = 10_000

export interface ConversationFilters {
  q: string | null
  subject: string | null
  agent: string | null
  status: string | null
  /** When the last activity was. */
  range: TimeRange
}

export const NO_FILTERS: ConversationFilters = {
  q: null,
  subject: null,
  agent: null,
  status: null,
  range: ALL_TIME,
}

export interface ConversationList {
  items: readonly Conversation[]
  nextCursor: string | null
  /** Whether more than the first page was read: it is not refreshed then. */
  isLong: boolean
}

export interface Turns {
  conversation: Conversation
  turns: readonly Turn[]
  nextCursor: string | null
}

/** The mark of a conversation: a last turn that succeeded does not hide that another one failed. */
export const markOf = ({ status, failedTurns }: Conversation) =>
  status === 'succeeded' && failedTurns > 0 ? 'handled' : status

/** Whether not all conversations are listed. */
export function isNarrowing({ range, ...texts }: ConversationFilters): boolean {
  return !isAllTime(range) || Object.values(texts).some(Boolean)
}

function given({ range, ...filters }: ConversationFilters) {
  const bounds = boundsOf(range, Date.now())
  return Object.fromEntries(Object.entries({ ...filters, ...bounds }).filter(([, value]) => value))
}

export function useConversationList(filters: () => ConversationFilters) {
  const key = () => ['conversations', filters()]
  const state = useServerState<ConversationList>({
    key,
    ask: async () => {
      const answer = await listConversations(given(filters()))
      if (!answer.ok) return answer
      const { items, nextCursor } = answer.value
      return { ok: true, value: { items, nextCursor, isLong: false } }
    },
    again: (list) => (list.isLong ? false : AGAIN),
  })
  const more = useMore<ConversationList>(key, state.answer, async (list) => {
    const cursor = list.nextCursor
    const answer = await listConversations({ ...given(filters()), cursor })
    if (!answer.ok) return answer
    const { items, nextCursor } = answer.value
    return { ok: true, value: { items: [...list.items, ...items], nextCursor, isLong: true } }
  })
  return { ...state, ...more, failure: computed(() => state.failure.value ?? more.failure.value) }
}

export function useConversation(sessionId: string) {
  const key = () => ['conversation', sessionId]
  const client = useQueryClient()
  const state = useServerState<Turns>({
    key,
    // Again from the beginning, as far as it was read: any turn may have changed.
    ask: async () => {
      const least = client.getQueryData<Turns>(key())?.turns.length ?? 0
      return readConversation(sessionId, { limit: Math.min(500, Math.max(50, least)) })
    },
    again: ({ conversation }) => (conversation.openTurns > 0 ? AGAIN_ACTIVE : AGAIN),
  })
  const more = useMore<Turns>(key, state.answer, async (shown) => {
    const answer = await readConversation(sessionId, { cursor: shown.nextCursor })
    if (!answer.ok) return answer
    return { ok: true, value: { ...answer.value, turns: [...shown.turns, ...answer.value.turns] } }
  })
  return { ...state, ...more, failure: computed(() => state.failure.value ?? more.failure.value) }
}

type Asked<Answer> = { ok: true; value: Answer } | { ok: false; failure: Failure }

/** Reads further pages into the answer that is shown. */
function useMore<Answer extends { nextCursor: string | null }>(
  key: () => readonly unknown[],
  answer: Readonly<{ value: Answer | null }>,
  read: (shown: Answer) => Promise<Asked<Answer>>,
) {
  const client = useQueryClient()
  const isLoadingMore = shallowRef(false)
  const failure = shallowRef<Failure | null>(null)

  async function loadMore() {
    const shown = answer.value
    if (!shown?.nextCursor || isLoadingMore.value) return
    isLoadingMore.value = true
    const asked = await read(shown)
    isLoadingMore.value = false
    failure.value = asked.ok ? null : asked.failure
    if (!asked.ok) return
    // A refresh in between may have moved the end.
    client.setQueryData<Answer>(key(), (now) =>
      now?.nextCursor === shown.nextCursor ? asked.value : now,
    )
  }

  return { isLoadingMore, loadMore, failure }
}

/** The filters of the address, as one value that can be written. */
export function useConversationFilters() {
  const filters = {
    q: useAddress('q'),
    subject: useAddress('subject'),
    agent: useAddress('agent'),
    status: useAddress('status'),
  }
  const range = useAddressOfMany(RANGE_PARAMETERS, 'replace', readRange, writeRange)
  return computed<ConversationFilters>({
    get: () => ({
      q: filters.q.value,
      subject: filters.subject.value,
      agent: filters.agent.value,
      status: filters.status.value,
      range: range.value,
    }),
    set({ range: wanted, ...texts }) {
      for (const name of Object.keys(filters) as (keyof typeof filters)[]) {
        filters[name].value = texts[name]
      }
      range.value = wanted
    },
  })
}
