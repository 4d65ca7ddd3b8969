/** Which rows of the tree are open, while it grows and its reader opens and closes rows. */
import { computed, shallowRef, watch, type Ref } from 'vue'
import { NOTHING_OPEN, openTo, openWhatFits, settle, type Opening } from '../lineage/opening'
import { visibleRows, type Forest } from '../lineage/rows'

/**
 * @param forest The tree's rows.
 * @param selected The key of the selected row; what lies above it is opened once, so that it shows.
 * @param capacity How many rows fit the screen; 0 while that is not known.
 */
export function useOpening(
  forest: Ref<Forest>,
  selected: Ref<string | null>,
  capacity: Ref<number>,
) {
  const opening = shallowRef<Opening>(NOTHING_OPEN)
  let revealed: string | null = null

  function update() {
    if (capacity.value === 0) return
    let next = opening.value
    const row = selected.value === null ? undefined : forest.value.byKey.get(selected.value)
    if (row && revealed !== row.key) {
      next = openTo(row, next)
      revealed = row.key
    }
    opening.value = openWhatFits(forest.value, next, capacity.value)
  }

  watch([forest, selected, capacity], update, { immediate: true })

  const expandedKeys = computed(() => opening.value.expanded)
  /** The same for the tree component, which wants an array. */
  const expanded = computed(() => [...opening.value.expanded])
  const visible = computed(() => visibleRows(forest.value.tops, opening.value.expanded))
  function setExpanded(keys: readonly string[]) {
    opening.value = settle(keys, opening.value)
  }
  return { expanded, expandedKeys, visible, setExpanded }
}
