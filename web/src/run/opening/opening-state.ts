/** Which rows of the tree are open, and at which row it begins. */
import { computed, shallowRef, watch, type Ref } from 'vue'
import type { Address } from '../../page/address'
import { ancestors, visibleRows, type Forest, type Row } from '../forest/rows'
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

/**
 * @param forest The tree's rows.
 * @param selected The key of the selected row; the rows above it are opened once, so that it shows.
 * @param capacity How many rows fit the screen; 0 until that is known.
 */
export function useOpening(
  forest: Ref<Forest>,
  selected: Ref<string | null>,
  capacity: Ref<number>,
  address: Address,
) {
  const rule = shallowRef(readRule(address.read('level')))
  const fit = shallowRef(NOTHING_FIT)
  const exceptions = shallowRef(NO_EXCEPTIONS)
  /** The key of the row at which the tree begins; null for the whole run. */
  const rootKey = shallowRef(address.read('root'))
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
        opened: readKeys(address.read('open'), keys),
        closed: readKeys(address.read('closed'), keys),
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
  address.onArrival(() => {
    rule.value = readRule(address.read('level'))
    rootKey.value = address.read('root')
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
    address.write({
      level: writeRule(rule.value),
      open: writeKeys(new Set([...opened].filter((key) => !implied.has(key))), keys),
      closed: writeKeys(closed, keys),
      root: rootKey.value,
    })
  })
  return { rule, setRule, expandedKeys, tops, root, visible, setOpen, reveal, beginAt }
}
