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
