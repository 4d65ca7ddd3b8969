/** Everything that a run page shows of its run, put together. */
import { computed, inject, provide, shallowRef, type InjectionKey, type Ref } from 'vue'
import { useAddress, type Address } from '../../page/address'
import { SOUGHT } from '../../ui/payload/sought'
import { FOREST } from '../forest/forest-key'
import type { Forest, Row } from '../forest/rows'
import { useOpening } from '../opening/opening-state'
import { windowAround } from '../timeline/time-scale'
import { TIMES, useTimeWindow } from '../timeline/time-window'
import { spanIn } from '../timeline/timeline'
import { countsBelow, failures, inOrder, neighbour } from './failures'
import { useSearch } from './search-state'

export type RunPage = ReturnType<typeof makeRunPage>

const RUN_PAGE: InjectionKey<RunPage> = Symbol('run page')

export function useRunPage(): RunPage {
  return inject(RUN_PAGE)!
}

/** Puts the page together, for the components below the one that calls it. */
export function provideRunPage(forest: Ref<Forest>): RunPage {
  const page = makeRunPage(forest)
  provide(RUN_PAGE, page)
  provide(FOREST, forest)
  provide(SOUGHT, page.search.sought)
  provide(TIMES, page.time)
  return page
}

function makeRunPage(forest: Ref<Forest>) {
  const address = useAddress()
  const { selected: chosen, select } = useSelection(address)
  /** Something to read from the start: without a selection in the URL, the root plan. */
  const selected = computed(() => chosen.value ?? forest.value.tops[0]?.key ?? null)
  /** How many rows fit the screen; 0 while that is not known. */
  const capacity = shallowRef(0)
  const ordered = computed(() => inOrder(forest.value))
  const order = computed(() => new Map(ordered.value.map((row, index) => [row.key, index])))
  const opening = useOpening(forest, chosen, capacity, address)
  const search = useSearch(ordered, address)
  const time = useTimeWindow(forest, address)
  const failed = computed(() => failures(ordered.value))
  const failedBelow = computed(() => countsBelow(failed.value))

  function goTo(row: Row | null | undefined) {
    if (!row) return
    opening.reveal(row)
    select(row.key, true)
  }

  function goToFailure(direction: 1 | -1) {
    goTo(neighbour(order.value, failed.value, selected.value, direction))
  }

  function goToHit(direction: 1 | -1) {
    search.settle()
    goTo(neighbour(order.value, search.hits.value, selected.value, direction))
  }

  function selectedRow(): Row | null {
    return selected.value === null ? null : (forest.value.byKey.get(selected.value) ?? null)
  }

  /** To the tool call within which the selected record came to be. */
  function goToParentCall() {
    let above = selectedRow()?.parent ?? null
    while (above && above.kind !== 'toolCall') above = above.parent
    goTo(above)
  }

  /** Opens the selected row and all beside it. */
  function openSiblings() {
    const row = selectedRow()
    const beside = row?.parent ? row.parent.children : forest.value.tops
    opening.setOpen(
      beside.filter((each) => each.children.length > 0).map((each) => each.key),
      true,
    )
  }

  /** Shows the selected record's time, as large as there is room. */
  function zoomToSelected() {
    const row = selectedRow()
    const span = row && spanIn(time.timeline.value, row)
    if (span) time.show(windowAround(span, time.now.value))
  }

  return {
    forest,
    /** The key that the URL names, which the tree may not hold. */
    chosen,
    selected,
    select,
    capacity,
    opening,
    search,
    time,
    failed,
    failedBelow,
    goTo,
    goToFailure,
    goToHit,
    goToParentCall,
    openSiblings,
    zoomToSelected,
  }
}

/** Which record is selected: in the URL, as `?select={id}`. */
function useSelection(address: Address) {
  const selected = shallowRef(address.read('select'))

  /**
   * Selects a row by hand.
   *
   * @param trail Whether going back returns to the row selected before; walking by keys leaves no trail.
   */
  function select(key: string, trail: boolean) {
    if (key === selected.value) return
    selected.value = key
    address.write({ select: key }, trail)
  }

  address.onArrival(() => (selected.value = address.read('select')))
  return { selected, select }
}
