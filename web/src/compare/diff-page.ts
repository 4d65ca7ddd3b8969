/** The state of a comparison: open rows and the selected one; in the address. */
import { computed, shallowRef, type Ref } from 'vue'
import type { RunDiff } from '../api/shapes'
import { useAddress } from '../page/address'
import {
  buildDiffRows,
  closedAbove,
  differingRows,
  neighbour,
  visibleDiffRows,
  type DiffRow,
} from './diff-rows'

export function useDiffPage(diff: Ref<RunDiff | null>) {
  const rows = computed(() => (diff.value ? buildDiffRows(diff.value.root) : null))
  const turned = shallowRef<ReadonlySet<string>>(new Set())
  const onlyDifferences = useAddress(
    'only',
    'replace',
    (text) => text === 'differences',
    (only) => (only ? 'differences' : null),
  )
  const chosen = useAddress('select')

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
    chosen.value = row.key
  }

  /** The row of a record of the left run, or of the right one if it is only there. */
  const rowOf = (id: string) => rows.value?.byKey.get(id)

  function goToRecord(id: string) {
    const row = rowOf(id)
    if (row) goTo(row)
  }

  /** To the next row that differs, or the one before; from the last to the first. */
  function goToDifference(direction: 1 | -1): DiffRow | null {
    if (differing.value.length === 0 || rows.value === null) return null
    const found = neighbour(rows.value.top, differing.value, active.value, direction)
    if (found) goTo(found)
    return found
  }

  return {
    turned,
    turn,
    onlyDifferences,
    visible,
    differing,
    active,
    goTo,
    rowOf,
    goToRecord,
    goToDifference,
  }
}
