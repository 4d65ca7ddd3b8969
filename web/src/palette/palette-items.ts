/** Matches the palette's items with a query. */
import type { Run } from '../api/shapes'
import { folded, foldedQuery } from '../lib/text-search'

/** How many of a group are shown. */
export const SHOWN_OF_GROUP = 7

/** Ids of records, traces, spans, handles and providers have a digit and no spaces. */
const ID = /^(?=.*\d)[\w:.-]{8,}$/

/** Whether a query may be an id. */
export function isId(query: string): boolean {
  return ID.test(query.trim())
}

/** Returns the items whose text has each word of the query; those that begin with it come first. */
export function matching<Item>(
  items: readonly Item[],
  textOf: (item: Item) => string,
  query: string,
): Item[] {
  const wanted = foldedQuery(query)
  if (wanted === '') return [...items]
  const words = wanted.split(' ')
  const found = items
    .map((item) => ({ item, text: folded(textOf(item)) }))
    .filter(({ text }) => words.every((word) => text.includes(word)))
  const begins = (text: string) => (text.startsWith(wanted) ? 0 : 1)
  return found.sort((one, other) => begins(one.text) - begins(other.text)).map(({ item }) => item)
}

/** The agents of these runs, each once, in the order of the runs. */
export function agentsOf(runs: readonly Run[]): string[] {
  const names = runs.map((run) => run.agentName).filter((name) => name !== null && name.trim())
  return [...new Set(names as string[])]
}
