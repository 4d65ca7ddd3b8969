/** Which record is selected: in the URL, as `?select={id}`. */
import { shallowRef } from 'vue'
import type { Address } from '../../page/address'

export function useSelection(address: Address) {
  const selected = shallowRef(address.read('select'))

  /**
   * Selects a row by hand.
   *
   * @param trail Whether going back returns to what was selected; walking by keys leaves no trail.
   */
  function select(key: string, trail: boolean) {
    if (key === selected.value) return
    selected.value = key
    address.write({ select: key }, trail)
  }

  address.onArrival(() => (selected.value = address.read('select')))
  return { selected, select }
}
