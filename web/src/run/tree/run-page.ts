/** The state of a run's page, by subject, for the components below the one that provides it. */
import { computed, provide, type Ref } from 'vue'
import { useAddress } from '../../page/address'
import { SEARCH_TEXT } from '../../ui/payload/search-text'
import { FOREST } from '../forest/forest-key'
import { mergeRows } from '../forest/merged-rows'
import type { Forest } from '../forest/rows'
import { provideFailures } from '../forest/run-failures'
import { provideSelection } from '../forest/selection'
import { provideOpening } from '../opening/opening-state'
import { provideTimes } from '../timeline/time-window'
import { provideFollowing } from './following'
import { provideSearch } from './search-state'

/**
 * @param records The forest in which each record has a row.
 * @param silentSince See `provideTimes`.
 * @param live See `provideFollowing`.
 */
export function provideRunPage(
  records: Ref<Forest>,
  silentSince: Readonly<Ref<number | null>>,
  live: Readonly<Ref<boolean>>,
) {
  /** Whether each record has a row of its own. */
  const allRecords = useAddress(
    'records',
    'replace',
    (text) => text === 'all',
    (all) => (all ? 'all' : null),
  )
  const forest = computed(() => (allRecords.value ? records.value : mergeRows(records.value)))
  provide(FOREST, records)
  const selection = provideSelection(forest)
  const opening = provideOpening(records, forest, allRecords, selection)
  const search = provideSearch(forest, selection, opening)
  provide(SEARCH_TEXT, search.searchText)
  provideTimes(records, silentSince)
  provideFollowing(forest, live, selection.chosen)
  provideFailures(forest)
  return selection
}
