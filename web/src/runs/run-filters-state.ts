/** The filters of the run list: in the address, and heard of once a word is typed. */
import { onScopeDispose, shallowRef } from 'vue'
import type { Address } from '../page/address'
import { NO_FILTERS, readFilters, writeFilters, type RunFilters } from './run-filters'

/** Between two letters of a word. */
const TYPING = 250

export function useRunFilters(address: Address) {
  /** The filters in the form. */
  const filters = shallowRef(readFilters(address.read))
  /** The filters of the listed runs. */
  const settled = shallowRef(filters.value)
  let timer: ReturnType<typeof setTimeout> | undefined

  /** @param typed Whether more may follow at once; going back then skips the steps in between. */
  function change(changes: Partial<RunFilters>, typed = false) {
    filters.value = { ...filters.value, ...changes }
    address.write(writeFilters(filters.value), !typed)
    clearTimeout(timer)
    timer = setTimeout(() => (settled.value = filters.value), typed ? TYPING : 0)
  }

  address.onArrival(() => {
    clearTimeout(timer)
    filters.value = settled.value = readFilters(address.read)
  })
  onScopeDispose(() => clearTimeout(timer))
  return { filters, settled, change, reset: () => change(NO_FILTERS) }
}
