/** The filters of the run list: in the address, and applied once a word is typed. */
import { watchDebounced } from '@vueuse/core'
import { shallowRef } from 'vue'
import { useAddressOfMany } from '../page/address'
import {
  FILTER_PARAMETERS,
  NO_FILTERS,
  readFilters,
  writeFilters,
  type RunFilters,
} from './run-filters'

/** Between two letters of a word. */
const TYPING = 250

export function useRunFilters() {
  const mode = shallowRef<'push' | 'replace'>('push')
  const debounce = shallowRef(0)
  /** The filters in the form. */
  const filters = useAddressOfMany(FILTER_PARAMETERS, mode, readFilters, writeFilters)
  /** The filters of the listed runs. */
  const settled = shallowRef(filters.value)
  watchDebounced(
    filters,
    (value) => {
      settled.value = value
      debounce.value = 0
    },
    { debounce },
  )

  /** @param typed Whether more may follow at once; going back then skips the steps in between. */
  function change(changes: Partial<RunFilters>, typed = false) {
    mode.value = typed ? 'replace' : 'push'
    debounce.value = typed ? TYPING : 0
    filters.value = { ...filters.value, ...changes }
  }

  return { filters, settled, change, reset: () => change(NO_FILTERS) }
}
