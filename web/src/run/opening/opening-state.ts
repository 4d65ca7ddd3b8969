/** Which rows of the tree are open, and at which row it begins. */
import { computed, inject, provide, shallowRef, watch, type InjectionKey, type Ref } from 'vue'
import { useAddress } from '../../page/address'
import { ancestors, visibleRows, type Forest, type Row } from '../forest/rows'
import type { Selection } from '../forest/selection'
import {
  closedAbove,
  except,
  NO_EXCEPTIONS,
  NOTHING_FIT,
  openByRule,
  openRows,
  openWhatFits,
  type OpeningRule,
} from './opening'
import { readKeys, readRule, writeKeys, writeRule } from './opening-link'

/** Deeper rows would have no room for their names: the tree begins at a lower row instead. */
export const DEEPEST = 12
/** How many levels above a deep row stay visible when the tree begins at a lower row. */
const LEVELS_ABOVE = 5

export type Opening = ReturnType<typeof provideOpening>

const OPENING: InjectionKey<Opening> = Symbol('opening')

export function useOpening(): Opening {
  return inject(OPENING)!
}

/**
 * @param records The forest in which each record has a row.
 * @param forest The tree's rows.
 * @param allRecords Whether these are all records.
 * @param selection The rows above the selected one are opened once, so that it shows.
 */
export function provideOpening(
  records: Ref<Forest>,
  forest: Ref<Forest>,
  allRecords: Ref<boolean>,
  { chosen: selected, selected: shown, selectedRow: shownRow, select }: Selection,
) {
  /** How many rows fit the screen; 0 until that is known. */
  const capacity = shallowRef(0)
  const rule = useAddress('level', 'replace', readRule, writeRule)
  const openText = useAddress('open')
  const closedText = useAddress('closed')
  const fit = shallowRef(NOTHING_FIT)
  const exceptions = shallowRef(NO_EXCEPTIONS)
  /** The key of the row at which the tree begins; null for the whole run. */
  const rootKey = useAddress('root')
  /** Whether the address's rows have been looked up, which needs a tree. */
  let arrived = false
  let revealed: string | null = null

  const root = computed(() =>
    rootKey.value === null ? null : (forest.value.byKey.get(rootKey.value) ?? null),
  )
  const tops = computed(() => (root.value ? [root.value] : forest.value.tops))
  const byRule = computed(() => openByRule(forest.value, rule.value, fit.value))
  const expandedKeys = computed(() => openRows(byRule.value, exceptions.value))
  const visible = computed(() => visibleRows(tops.value, expandedKeys.value, DEEPEST))

  function update() {
    if (capacity.value === 0 || forest.value.tops.length === 0) return
    fit.value = openWhatFits(forest.value, fit.value, capacity.value)
    if (!arrived) {
      arrived = true
      const keys = [...forest.value.byKey.keys()]
      exceptions.value = {
        opened: readKeys(openText.value, keys),
        closed: readKeys(closedText.value, keys),
      }
      revealed = null
    }
    const row = selectedRow()
    if (row && revealed !== row.key) {
      // A link names the rows above its selection that are closed.
      const named = revealed === null ? exceptions.value.closed : new Set<string>()
      const keys = closedAbove(row, expandedKeys.value).filter((key) => !named.has(key))
      if (keys.length > 0) setOpen(keys, true)
      beginWithin(row)
      revealed = row.key
    }
  }

  function selectedRow(): Row | undefined {
    return selected.value === null ? undefined : forest.value.byKey.get(selected.value)
  }

  function setOpen(keys: Iterable<string>, isOpen: boolean) {
    exceptions.value = except(exceptions.value, byRule.value, keys, isOpen)
  }

  function setRule(wanted: OpeningRule) {
    if (wanted === 'fit') {
      fit.value = openWhatFits(forest.value, NOTHING_FIT, capacity.value)
    }
    rule.value = wanted
    exceptions.value = NO_EXCEPTIONS
  }

  /** Opens everything above a row, and begins the tree at a row from which it can be seen. */
  function reveal(row: Row) {
    setOpen(closedAbove(row, expandedKeys.value), true)
    beginWithin(row)
  }

  /** Begins the tree at a row; null for the whole run. */
  function beginAt(row: Row | null) {
    rootKey.value = row === null || row.parent === null ? null : row.key
    if (row) setOpen([row.key], true)
  }

  /** Begins the tree at another row only if a row could not be seen otherwise. */
  function beginWithin(row: Row) {
    const path = [...ancestors(row), row]
    const index = root.value ? path.indexOf(root.value) : 0
    if (index >= 0 && path.length - index <= DEEPEST) return
    const first = path.length <= DEEPEST ? 0 : path.length - 1 - LEVELS_ABOVE
    beginAt(path[first]!)
  }

  watch([forest, selected, capacity], update, { immediate: true })
  /** Whether the keys in the address are those of `exceptions`; a link brings others. */
  const isWritten = () => openText.value === written.open && closedText.value === written.closed
  let written: { open: string | null; closed: string | null } = { open: null, closed: null }
  watch([openText, closedText], () => {
    if (isWritten()) return
    arrived = false
    update()
  })
  watch([rule, exceptions, selected, rootKey], () => {
    if (!arrived) return
    const row = selectedRow()
    // The selection implies that the rows above it are open.
    const implied = new Set(row ? ancestors(row).map((each) => each.key) : [])
    const keys = [...forest.value.byKey.keys()]
    const { opened, closed } = exceptions.value
    written = {
      open: writeKeys(new Set([...opened].filter((key) => !implied.has(key))), keys),
      closed: writeKeys(closed, keys),
    }
    openText.value = written.open
    closedText.value = written.closed
  })

  function goTo(row: Row | null | undefined) {
    if (!row) return
    reveal(row)
    select(row.key, true)
  }

  /** Goes to the tool call within which the selected record was made. */
  function goToParentCall() {
    const record = shown.value === null ? undefined : records.value.byKey.get(shown.value)
    const call = record && ancestors(record).findLast((row) => row.kind === 'toolCall')
    if (!call) return
    const row = forest.value.byKey.get(call.key)
    if (row) reveal(row)
    select(call.key, true)
  }

  /** Opens the selected row and its siblings. */
  function openSiblings() {
    const row = shownRow.value
    const siblings = row?.parent ? row.parent.children : forest.value.tops
    setOpen(
      siblings.filter((each) => each.children.length > 0).map((each) => each.key),
      true,
    )
  }

  const opening = {
    forest,
    allRecords,
    capacity,
    rule,
    setRule,
    expandedKeys,
    root,
    visible,
    setOpen,
    beginAt,
    goTo,
    goToParentCall,
    openSiblings,
  }
  provide(OPENING, opening)
  return opening
}
