/** Everything that a run page shows of its run, put together. */
import { computed, inject, provide, shallowRef, watch, type InjectionKey, type Ref } from 'vue'
import { useAddress, type Address } from '../../page/address'
import { SEARCH_TEXT } from '../../ui/payload/search-text'
import { countsBelow, failures, isBad, neighbour, originOf } from '../forest/failures'
import { FOREST } from '../forest/forest-key'
import { mergeRows } from '../forest/merged-rows'
import { ancestors, isRecord, shownTotals, type Forest, type Row } from '../forest/rows'
import { useOpening } from '../opening/opening-state'
import { windowAround } from '../timeline/time-scale'
import { TIMES, useTimeWindow } from '../timeline/time-window'
import { spanIn } from '../timeline/timeline'
import { useSearch } from './search-state'

export type RunPage = ReturnType<typeof makeRunPage>

const RUN_PAGE: InjectionKey<RunPage> = Symbol('run page')

export function useRunPage(): RunPage {
  return inject(RUN_PAGE)!
}

/** Puts the page together, for the components below the one that calls it. */
export function provideRunPage(
  records: Ref<Forest>,
  silentSince: Readonly<Ref<number | null>>,
): RunPage {
  const page = makeRunPage(records, silentSince)
  provide(RUN_PAGE, page)
  provide(FOREST, records)
  provide(SEARCH_TEXT, page.search.searchText)
  provide(TIMES, page.time)
  return page
}

function makeRunPage(records: Ref<Forest>, silentSince: Readonly<Ref<number | null>>) {
  const address = useAddress()
  /** Whether each record has a row of its own. */
  const allRecords = shallowRef(address.read('records') === 'all')
  watch(allRecords, (all) => address.write({ records: all ? 'all' : null }))
  address.onArrival(() => (allRecords.value = address.read('records') === 'all'))
  const forest = computed(() => (allRecords.value ? records.value : mergeRows(records.value)))
  const { selected: chosen, select } = useSelection(address)
  /** Something to read from the start: without a selection in the URL, the root plan. */
  const selected = computed(() => chosen.value ?? forest.value.tops[0]?.key ?? null)
  /** The row that shows the selected record. */
  const selectedRow = computed(() =>
    selected.value === null ? null : (forest.value.byKey.get(selected.value) ?? null),
  )
  const selectedKey = computed(() => selectedRow.value?.key ?? null)
  /** How many rows fit the screen; 0 while that is not known. */
  const capacity = shallowRef(0)
  const ordered = computed(() => forest.value.all)
  const order = computed(() => new Map(ordered.value.map((row, index) => [row.key, index])))
  const opening = useOpening(forest, chosen, capacity, address)
  const search = useSearch(ordered, address)
  const time = useTimeWindow(records, address, silentSince)
  const failed = computed(() => failures(ordered.value))
  const failedRows = computed(() => failed.value.map(({ row }) => row))
  const failedBelow = computed(() => countsBelow(failedRows.value))
  const origin = computed(() => originOf(forest.value, failed.value))

  const unhandledBelow = computed(() =>
    countsBelow(failed.value.filter(({ isHandled }) => !isHandled).map(({ row }) => row)),
  )
  const failedByKey = computed(() => new Map(failed.value.map((each) => [each.row.key, each])))

  /** Whether a failure began at a row, or somewhere below it. */
  function failureOf(row: Row): 'here' | 'handled' | 'below' | null {
    const failure = failedByKey.value.get(row.key)
    if (failure) return failure.isHandled ? 'handled' : 'here'
    // An agent that went on despite a failure below did not fail itself.
    const hasFailed = isRecord(row) && isBad(row.record.status)
    const passesOn = row.kind === 'thinkAct' && unhandledBelow.value.has(row.key)
    return (hasFailed || passesOn) && failedBelow.value.has(row.key) ? 'below' : null
  }

  /** Returns the part of the run's cost that a row shows; of its tokens if no price is known. */
  function shareOf(row: Row): number {
    const whole = records.value.tops[0]?.cumulative
    if (!whole) return 0
    const part = shownTotals(row)
    if (whole.costUsd) return (part.costUsd ?? 0) / whole.costUsd
    const tokens = whole.inputTokens + whole.outputTokens
    if (tokens === 0) return 0
    return (part.inputTokens + part.outputTokens) / tokens
  }

  function goTo(row: Row | null | undefined) {
    if (!row) return
    opening.reveal(row)
    select(row.key, true)
  }

  function goToFailure(direction: 1 | -1) {
    goTo(neighbour(order.value, failedRows.value, selectedKey.value, direction))
  }

  function goToHit(direction: 1 | -1) {
    search.settle()
    goTo(neighbour(order.value, search.hits.value, selectedKey.value, direction))
  }

  /** Goes to the tool call within which the selected record was made. */
  function goToParentCall() {
    const record = selected.value === null ? undefined : records.value.byKey.get(selected.value)
    const call = record && ancestors(record).findLast((row) => row.kind === 'toolCall')
    if (!call) return
    const row = forest.value.byKey.get(call.key)
    if (row) opening.reveal(row)
    select(call.key, true)
  }

  /** Opens the selected row and its siblings. */
  function openSiblings() {
    const row = selectedRow.value
    const beside = row?.parent ? row.parent.children : forest.value.tops
    opening.setOpen(
      beside.filter((each) => each.children.length > 0).map((each) => each.key),
      true,
    )
  }

  /** Shows the selected record's time, as large as there is room. */
  function zoomToSelected() {
    const row = selectedRow.value
    const span = row && spanIn(time.timeline.value, row)
    if (span) time.show(windowAround(span, time.now.value))
  }

  return {
    forest,
    records,
    allRecords,
    /** The key that the URL names, which the tree may not hold. */
    chosen,
    selected,
    selectedRow,
    selectedKey,
    select,
    capacity,
    opening,
    search,
    time,
    failed,
    failedBelow,
    failureOf,
    shareOf,
    origin,
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
