/** Which rows of the tree are open, while it grows and its reader opens and closes rows. */
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

/**
 * @param forest The tree's rows.
 * @param selected The key of the selected row; what lies above it is opened once, so that it shows.
 * @param capacity How many rows fit the screen; 0 while that is not known.
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
  /** Whether the address's rows have been looked up, which needs a tree. */
  let arrived = false
  let revealed: string | null = null

  const byRule = computed(() => openByRule(forest.value, rule.value, fit.value))
  const expandedKeys = computed(() => openRows(byRule.value, exceptions.value))
  const visible = computed(() => visibleRows(forest.value.tops, expandedKeys.value))

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
    const row = selected.value === null ? undefined : forest.value.byKey.get(selected.value)
    if (row && revealed !== row.key) {
      // A link says which rows above its selection are closed.
      const named = revealed === null ? exceptions.value.closed : new Set<string>()
      const keys = closedAbove(row, expandedKeys.value).filter((key) => !named.has(key))
      if (keys.length > 0) setOpen(keys, true)
      revealed = row.key
    }
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

  /** Opens everything above a row. */
  function reveal(row: Row) {
    setOpen(closedAbove(row, expandedKeys.value), true)
  }

  watch([forest, selected, capacity], update, { immediate: true })
  address.onArrival(() => {
    rule.value = readRule(address.read('level'))
    arrived = false
    update()
  })
  watch([rule, exceptions, selected], () => {
    if (!arrived) return
    const row = selected.value === null ? undefined : forest.value.byKey.get(selected.value)
    // What a selection opens needs no other mention.
    const implied = new Set(row ? ancestors(row).map((each) => each.key) : [])
    const keys = [...forest.value.byKey.keys()]
    const { opened, closed } = exceptions.value
    address.write({
      level: writeRule(rule.value),
      open: writeKeys(new Set([...opened].filter((key) => !implied.has(key))), keys),
      closed: writeKeys(closed, keys),
    })
  })
  return { rule, setRule, expandedKeys, visible, setOpen, reveal }
}
