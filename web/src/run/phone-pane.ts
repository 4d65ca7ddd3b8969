/** Which pane of a run a small screen shows: the tree, or the details of the selected record. */
import { shallowRef, watch, type Ref } from 'vue'

export function usePhonePane(chosen: Readonly<Ref<string | null>>) {
  const pane = shallowRef<'tree' | 'details'>(chosen.value === null ? 'tree' : 'details')
  // Going back to an address without a record leads to the tree.
  watch(chosen, (key) => (pane.value = key === null ? 'tree' : 'details'))

  /** A row that is selected already is opened too. */
  function onTap(event: MouseEvent) {
    const target = event.target instanceof Element ? event.target : null
    if (target?.closest('[role="treeitem"]') && !target.closest('[data-arrow]')) {
      pane.value = 'details'
    }
  }

  return { pane, onTap }
}
