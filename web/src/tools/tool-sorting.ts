/** The order of the tools page's table. */
import type { ToolStats } from '../api/shapes'

export const COLUMNS = [
  'name',
  'calls',
  'failures',
  'failureRate',
  'p50Ms',
  'p95Ms',
  'p99Ms',
  'latestAt',
] as const satisfies readonly (keyof ToolStats)[]

export type Column = (typeof COLUMNS)[number]

export interface Sorting {
  by: Column
  descending: boolean
}

/** The tools with the most calls are first by default. */
export const MOST_CALLED: Sorting = { by: 'calls', descending: true }

export function readSorting(text: string | null): Sorting {
  const by = COLUMNS.find((column) => column === text?.replace(/^-/, ''))
  return by ? { by, descending: text!.startsWith('-') } : MOST_CALLED
}

export function writeSorting({ by, descending }: Sorting): string | null {
  if (by === MOST_CALLED.by && descending === MOST_CALLED.descending) return null
  return descending ? `-${by}` : by
}

/** The sorting after a click on a column's name: reversed, or the greatest first. */
export function sortingAfter(now: Sorting, column: Column): Sorting {
  if (now.by === column) return { by: column, descending: !now.descending }
  return { by: column, descending: column !== 'name' }
}

/** Tools in order; those without a value come last, either way. */
export function sortTools(
  tools: readonly ToolStats[],
  { by, descending }: Sorting,
  locale: string,
): ToolStats[] {
  const sign = descending ? -1 : 1
  const names = new Intl.Collator(locale, { numeric: true })
  return [...tools].sort((one, other) => {
    const [a, b] = [one[by], other[by]]
    if (a === null || b === null) {
      if (a !== b) return a === null ? 1 : -1
    } else if (typeof a === 'number' && typeof b === 'number') {
      if (a !== b) return sign * (a - b)
    } else {
      const order = by === 'latestAt' ? Date.parse(String(a)) - Date.parse(String(b)) : 0
      const found = order || names.compare(String(a), String(b))
      if (found !== 0) return sign * found
    }
    return names.compare(one.name, other.name)
  })
}
