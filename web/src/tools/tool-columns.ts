/** The columns of the table of tools, and its order in the address. */
import {
  createSortedRowModel,
  rowSortingFeature,
  sortFn_basic,
  tableFeatures,
  type ColumnDef,
  type SortingState,
} from '@tanstack/vue-table'
import type { ListedToolStats } from '../api/shapes'

export const COLUMNS = [
  'name',
  'calls',
  'failedHere',
  'failedBelow',
  'failureRate',
  'abandoned',
  'p50Ms',
  'p95Ms',
  'ownP95Ms',
  'p99Ms',
  'latestAt',
] as const satisfies readonly (keyof ListedToolStats)[]

export type Column = (typeof COLUMNS)[number]

export const features = tableFeatures({
  rowSortingFeature,
  sortedRowModel: createSortedRowModel(),
})

const names = new Intl.Collator(undefined, { numeric: true })

export const columns: ColumnDef<typeof features, ListedToolStats>[] = COLUMNS.map((id) => ({
  id,
  // Tools without a value come last, either way.
  accessorFn: (tool) => (id === 'latestAt' ? Date.parse(tool[id]) : (tool[id] ?? undefined)),
  sortUndefined: 'last',
  sortDescFirst: id !== 'name',
  sortFn:
    id === 'name'
      ? (one, other) => names.compare(one.original.name, other.original.name)
      : sortFn_basic,
}))

/** The tools with the most calls are first by default. */
const MOST_CALLED: SortingState = [{ id: 'calls', desc: true }]

export function readSorting(text: string | null): SortingState {
  const id = COLUMNS.find((column) => column === text?.replace(/^-/, ''))
  return id ? [{ id, desc: text!.startsWith('-') }] : MOST_CALLED
}

export function writeSorting([sort]: SortingState): string | null {
  if (!sort || (sort.id === 'calls' && sort.desc)) return null
  return sort.desc ? `-${sort.id}` : sort.id
}
