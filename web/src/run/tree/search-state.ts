/** The search in a run: its query and its hits. */
import { useTimeoutFn } from '@vueuse/core'
import { computed, shallowRef, watch, type Ref } from 'vue'
import { foldedQuery } from '../../lib/text-search'
import type { Address } from '../../page/address'
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

  const hits = computed(() =>
    searchText.value === '' ? [] : ordered.value.filter((row) => isHit(row, searchText.value)),
  )
  const hitKeys = computed(() => new Set(hits.value.map((row) => row.key)))
  const hitsBelow = computed(() => countsBelow(hits.value))
  /** How many records were searched in part only. */
  const cut = computed(() =>
    searchText.value === '' ? 0 : ordered.value.filter((row) => recordsOf(row).some(isCut)).length,
  )
  return { query, searchText, settle, hits, hitKeys, hitsBelow, cut }
}
