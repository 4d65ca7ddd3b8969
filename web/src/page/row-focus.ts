/** Walking through the rows of a page by keys: those of the tree, or the links of a table. */

const TREE_ROWS = '[role="treeitem"]'
const TABLE_ROWS = 'main tbody tr'
/** The element that opens a table's row. */
const OPENS = 'a[href], button'

/** Puts the keyboard on the next row, or with -1 on the one before. */
export function nextRow(direction: 1 | -1): void {
  const inTree = document.querySelector<HTMLElement>(`${TREE_ROWS}[tabindex="0"]`)
  if (inTree) return walkTree(inTree, direction)
  const rows = [...document.querySelectorAll<HTMLElement>(TABLE_ROWS)]
    .map((row) => row.querySelector<HTMLElement>(OPENS))
    .filter((link) => link?.checkVisibility())
    .map((link) => link!)
  const row = document.activeElement?.closest(TABLE_ROWS)
  const at = row ? rows.findIndex((link) => row.contains(link)) : -1
  const next = at < 0 ? (direction === 1 ? 0 : rows.length - 1) : at + direction
  rows[next]?.focus()
  rows[next]?.scrollIntoView({ block: 'nearest' })
}

/** The tree knows its rows, also those that are not in the page. */
function walkTree(row: HTMLElement, direction: 1 | -1) {
  const key = direction === 1 ? 'ArrowDown' : 'ArrowUp'
  row.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }))
}
