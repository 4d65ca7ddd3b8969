/** The state of a comparison: open rows and the selected one; in the address. */
import { computed, ref, shallowRef, type Ref } from 'vue'
import type { RunDiff } from '../api/shapes'
import type { Address } from '../page/address'
import {
  buildDiffRows,
  closedAbove,
  differingRows,
  neighbour,
  visibleDiffRows,
  type DiffRow,
} from './diff-rows'

export function useDiffPage(diff: Ref<RunDiff | null>, address: Address) {
  const rows = computed(() => (diff.value ? buildDiffRows(diff.value.root) : null))
  const turned = shallowRef<ReadonlySet<string>>(new Set())
  const onlyDifferences = ref(address.read('only') === 'differences')
  const chosen = shallowRef(address.read('select'))

  const visible = computed(() =>
    rows.value ? visibleDiffRows(rows.value.top, turned.value, onlyDifferences.value) : [],
  )
  const differing = computed(() => (rows.value ? differingRows(rows.value.top) : []))
  /** The row that is looked at: at first the one on top. */
  const active = computed(() => {
    const found = chosen.value === null ? undefined : rows.value?.byKey.get(chosen.value)
    return found ?? rows.value?.top ?? null
  })

  function turn(keys: Iterable<string>) {
    const after = new Set(turned.value)
    for (const key of keys) if (!after.delete(key)) after.add(key)
    turned.value = after
  }

  /** Looks at a row, and opens what hides it. */
  function goTo(row: DiffRow) {
    const hidden = closedAbove(row, turned.value)
    if (hidden.length > 0) turn(hidden)
    if (row.key === chosen.value) return
    chosen.value = row.key
    address.write({ select: row.key })
  }

  /** To the next row that differs, or the one before; from the last to the first. */
  function goToDifference(direction: 1 | -1): DiffRow | null {
    if (differing.value.length === 0 || rows.value === null) return null
    const found = neighbour(rows.value.top, differing.value, active.value, direction)
    if (found) goTo(found)
    return found
  }

  function setOnlyDifferences(only: boolean) {
    onlyDifferences.value = only
    address.write({ only: only ? 'differences' : null })
  }

  address.onArrival(() => {
    chosen.value = address.read('select')
    onlyDifferences.value = address.read('only') === 'differences'
  })
  return {
    turned,
    turn,
    onlyDifferences,
    setOnlyDifferences,
    visible,
    differing,
    active,
    goTo,
    goToDifference,
  }
}
