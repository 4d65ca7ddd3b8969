/** Which record of a run is selected: in the address, as `?select={key}`. */
import { computed, inject, provide, shallowRef, type InjectionKey, type Ref } from 'vue'
import { useAddress } from '../../page/address'
import { neighbour } from './failures'
import type { Forest, Row } from './rows'

export type Selection = ReturnType<typeof provideSelection>

const SELECTION: InjectionKey<Selection> = Symbol('selection')

export function useSelection(): Selection {
  return inject(SELECTION)!
}

/** @param forest The rows of the tree, which may show several records in one row. */
export function provideSelection(forest: Ref<Forest>) {
  const mode = shallowRef<'push' | 'replace'>('replace')
  /** The key that the address names, which the tree may not hold. */
  const chosen = useAddress('select', mode)
  /** Something to read from the start: without a selection in the address, the root plan. */
  const selected = computed(() => chosen.value ?? forest.value.tops[0]?.key ?? null)
  /** The row that shows the selected record. */
  const selectedRow = computed(() =>
    selected.value === null ? null : (forest.value.byKey.get(selected.value) ?? null),
  )
  const selectedKey = computed(() => selectedRow.value?.key ?? null)
  const order = computed(() => new Map(forest.value.all.map((row, index) => [row.key, index])))

  /**
   * Selects a record.
   *
   * @param trail Whether going back returns to the record selected before; walking by keys leaves no trail.
   */
  function select(key: string, trail: boolean) {
    mode.value = trail ? 'push' : 'replace'
    chosen.value = key
  }

  /** The next of these rows after the selected one, or the one before; cyclically. */
  function neighbourAmong(rows: readonly Row[], direction: 1 | -1): Row | null {
    return neighbour(order.value, rows, selectedKey.value, direction)
  }

  const selection = { chosen, selected, selectedRow, selectedKey, select, neighbourAmong }
  provide(SELECTION, selection)
  return selection
}
