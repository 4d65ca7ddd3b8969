/** The runs that are picked to be compared, kept in the address of the list. */
import { computed, shallowRef } from 'vue'
import { readPicks, writePicks } from '../lineage/compare-picks'
import type { Address } from './address'

export function useRunPicks(address: Address) {
  const picks = shallowRef(readPicks(address.read('picked')))
  address.onArrival(() => (picks.value = readPicks(address.read('picked'))))
  return computed({
    get: () => picks.value,
    set: (wanted) => {
      picks.value = wanted
      address.write({ picked: writePicks(wanted) })
    },
  })
}
