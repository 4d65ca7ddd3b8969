/** Which columns the list shows, and by which of them it is sorted; both are in the address. */
import type { RunOrder } from '../api/shapes'
import { useAddress } from '../page/address'

export const COLUMNS = [
  'agent',
  'when',
  'duration',
  'tokens',
  'cost',
  'toolCalls',
  'session',
  'subject',
  'service',
  'environment',
  'tags',
] as const

export type Column = (typeof COLUMNS)[number]

export const STANDARD_COLUMNS: readonly Column[] = ['agent', 'when', 'duration', 'tokens', 'cost']

export const SORTABLE = ['when', 'duration', 'tokens', 'cost', 'toolCalls'] as const

export type SortKey = (typeof SORTABLE)[number]

export interface Sorting {
  key: SortKey
  /** Whether the greatest value is first. */
  descending: boolean
}

export function readColumns(text: string | null): readonly Column[] {
  if (text === null) return STANDARD_COLUMNS
  const named = text.split('.')
  return COLUMNS.filter((column) => named.includes(column))
}

export function writeColumns(columns: readonly Column[]): string | null {
  return columns.join() === STANDARD_COLUMNS.join() ? null : columns.join('.') || 'none'
}

/** Null is the order of the API: latest start first. */
export function readSorting(text: string | null): Sorting | null {
  const descending = text?.startsWith('-') ?? false
  const key = SORTABLE.find((each) => each === (descending ? text!.slice(1) : text))
  return key ? { key, descending } : null
}

export function writeSorting(sorting: Sorting | null): string | null {
  return sorting && `${sorting.descending ? '-' : ''}${sorting.key}`
}

/** Descending first, then ascending, then the order of the API. */
export function nextSorting(sorting: Sorting | null, key: SortKey): Sorting | null {
  if (sorting?.key !== key) return { key, descending: true }
  return sorting.descending ? { key, descending: false } : null
}

/** The order as the API names it; undefined is its own. */
export function orderOf(sorting: Sorting | null): RunOrder | undefined {
  if (!sorting) return undefined
  const name = sorting.key === 'when' ? 'start' : sorting.key
  return sorting.descending ? `-${name}` : name
}

export function useRunColumns() {
  return {
    columns: useAddress('columns', 'replace', readColumns, writeColumns),
    sorting: useAddress('sort', 'replace', readSorting, writeSorting),
  }
}
