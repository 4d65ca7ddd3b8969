/** The filters of the run list: in the address, and heard of once a word is typed. */
import { useTimeoutFn } from '@vueuse/core'
import { shallowRef } from 'vue'
import type { Address } from '../page/address'
import { NO_FILTERS, readFilters, writeFilters, type RunFilters } from './run-filters'

/** Between two letters of a word. */
const TYPING = 250

export function useRunFilters(address: Address) {
  /** The filters in the form. */
  const filters = shallowRef(readFilters(address.read))
  /** The filters of the listed runs. */
  const settled = shallowRef(filters.value)
  const delay = shallowRef(0)
  const settling = useTimeoutFn(() => (settled.value = filters.value), delay, { immediate: false })

  /** @param typed Whether more may follow at once; going back then skips the steps in between. */
  function change(changes: Partial<RunFilters>, typed = false) {
    filters.value = { ...filters.value, ...changes }
    address.write(writeFilters(filters.value), !typed)
    delay.value = typed ? TYPING : 0
    settling.start()
  }

  address.onArrival(() => {
    settling.stop()
    filters.value = settled.value = readFilters(address.read)
  })
  return { filters, settled, change, reset: () => change(NO_FILTERS) }
}
