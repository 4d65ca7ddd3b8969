/**
 * The search in a run: its query and its hits. Texts that the page has are searched at once; the
 * server searches whole texts, and the messages of model calls.
 */
import { useTimeoutFn } from '@vueuse/core'
import { computed, inject, provide, shallowRef, watch, type InjectionKey, type Ref } from 'vue'
import { useRoute } from 'vue-router'
import { searchRun } from '../../api/client'
import { useServerState } from '../../api/server-state'
import { foldedQuery, hasWord } from '../../lib/text-search'
import { useAddress } from '../../page/address'
import { recordId } from '../forest/records'
import { recordsOf, type Forest } from '../forest/rows'
import type { Selection } from '../forest/selection'
import type { Opening } from '../opening/opening-state'
import { countsBelow } from '../forest/failures'
import { isCut, isHit } from './search'

/** Typing on makes the last search useless. */
const PAUSE = 120

export type Search = ReturnType<typeof provideSearch>

const SEARCH: InjectionKey<Search> = Symbol('search')

export function useSearch(): Search {
  return inject(SEARCH)!
}

/** @param forest The rows of the tree. */
export function provideSearch(forest: Ref<Forest>, selection: Selection, opening: Opening) {
  const settled = useAddress('q')
  /** As it is typed. */
  const query = shallowRef(settled.value ?? '')
  watch(settled, (text) => (query.value = text ?? ''))
  /** As it is looked for. */
  const searchText = computed(() => foldedQuery(settled.value ?? ''))
  const pause = useTimeoutFn(settle, PAUSE, { immediate: false })
  watch(query, () => pause.start())

  /** Searches for the typed text without waiting for more. */
  function settle() {
    pause.stop()
    settled.value = query.value || null
  }

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
      : forest.value.all.filter(
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
      : forest.value.all.filter((row) => recordsOf(row).some(isCut)).length,
  )

  /** Whether the list's search lacks words of the run. */
  const lacksWords = computed(() => searchText.value !== '' && Boolean(found.answer.value?.isCut))

  function goToHit(direction: 1 | -1) {
    settle()
    opening.goTo(selection.neighbourAmong(hits.value, direction))
  }

  const results = { hits, hitKeys, hitsBelow, places, cut, lacksWords }
  const search = { query, searchText, settle, goToHit, ...results }
  provide(SEARCH, search)
  return search
}
