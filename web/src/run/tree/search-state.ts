/**
 * The search in a run: its query and its hits. Texts that the page has are searched at once; the
 * server searches whole texts, and the messages of model calls.
 */
import { useTimeoutFn } from '@vueuse/core'
import { computed, shallowRef, watch, type Ref } from 'vue'
import { useRoute } from 'vue-router'
import { searchRun } from '../../api/client'
import { useServerState } from '../../api/server-state'
import { foldedQuery, hasWord } from '../../lib/text-search'
import type { Address } from '../../page/address'
import { recordId } from '../forest/records'
import { recordsOf, type Row } from '../forest/rows'
import { countsBelow } from '../forest/failures'
import { isCut, isHit } from './search'

/** Typing on makes the last search useless. */
const PAUSE = 120

/** @param ordered Every row of the tree, from top to bottom. */
export function useSearch(ordered: Ref<readonly Row[]>, address: Address) {
  /** As it is typed. */
  const query = shallowRef(address.read('q') ?? '')
  /** As it is looked for. */
  const searchText = shallowRef(foldedQuery(query.value))
  const pause = useTimeoutFn(settle, PAUSE, { immediate: false })
  watch(query, () => pause.start())

  /** Searches for the typed text without waiting for more. */
  function settle() {
    pause.stop()
    searchText.value = foldedQuery(query.value)
    address.write({ q: query.value || null })
  }

  address.onArrival(() => {
    query.value = address.read('q') ?? ''
    searchText.value = foldedQuery(query.value)
  })

  const { rootPlanId } = useRoute().params
  const found = useServerState({
    key: () => ['run-search', rootPlanId, searchText.value],
    ask: () => searchRun(String(rootPlanId), searchText.value),
    wanted: () => hasWord(searchText.value),
  })
  /** The places that the server found, by the ids of their records. */
  const places = computed(() => {
    const isAnswered = hasWord(searchText.value) && !found.isStale.value
    const items = isAnswered ? (found.answer.value?.items ?? []) : []
    return new Map(items.map((place) => [place.id, place]))
  })

  const hits = computed(() =>
    searchText.value === ''
      ? []
      : ordered.value.filter(
          (row) =>
            isHit(row, searchText.value) ||
            recordsOf(row).some((record) => places.value.has(recordId(record))),
        ),
  )
  const hitKeys = computed(() => new Set(hits.value.map((row) => row.key)))
  const hitsBelow = computed(() => countsBelow(hits.value))
  /** How many records were searched in part only: none if the server has searched them. */
  const cut = computed(() =>
    searchText.value === '' || (places.value.size > 0 && !found.answer.value?.hasMore)
      ? 0
      : ordered.value.filter((row) => recordsOf(row).some(isCut)).length,
  )
  return { query, searchText, settle, hits, hitKeys, hitsBelow, places, cut }
}
