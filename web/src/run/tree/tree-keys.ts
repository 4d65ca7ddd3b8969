/** The keys of a run's tree. */
import type { Row } from '../forest/rows'

/** A name that is typed to be found ends when nothing is typed for so long, in milliseconds. */
const TYPING = 1_000

export interface WalkedTree {
  /** The rows from top to bottom. */
  rows: () => readonly Row[]
  /** How many fit the screen. */
  capacity: () => number
  nameOf: (row: Row) => string
  isOpen: (row: Row) => boolean
  toggle: (row: Row) => void
  select: (row: Row) => void
  /** Moves the focus to the row at an index. */
  focus: (index: number) => void
}

/** Gives what to call with a key that was pressed on a row. */
export function treeKeys(tree: WalkedTree): (event: KeyboardEvent, row: Row) => void {
  let typed = ''
  let typedAt = -Infinity

  function goTo(index: number) {
    tree.focus(Math.min(Math.max(0, index), tree.rows().length - 1))
  }

  const actions: Record<string, (row: Row, index: number) => void> = {
    ArrowDown: (_, index) => goTo(index + 1),
    ArrowUp: (_, index) => goTo(index - 1),
    PageDown: (_, index) => goTo(index + tree.capacity()),
    PageUp: (_, index) => goTo(index - tree.capacity()),
    Home: () => goTo(0),
    End: () => goTo(Infinity),
    ArrowRight: (row, index) => {
      if (row.children.length === 0) return
      if (tree.isOpen(row)) goTo(index + 1)
      else tree.toggle(row)
    },
    ArrowLeft: (row) => {
      if (row.children.length > 0 && tree.isOpen(row)) tree.toggle(row)
      else if (row.parent) goTo(tree.rows().indexOf(row.parent))
    },
    Enter: tree.select,
    ' ': tree.select,
  }

  const isTyping = (event: KeyboardEvent) => event.timeStamp - typedAt < TYPING

  function findTyped(event: KeyboardEvent, from: number) {
    typed = (isTyping(event) ? typed : '') + event.key.toLowerCase()
    typedAt = event.timeStamp
    const rows = tree.rows()
    const found = rowTyped(typed, from, rows.length, (at) => tree.nameOf(rows[at]!).toLowerCase())
    if (found >= 0) goTo(found)
  }

  return (event, row) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const index = tree.rows().indexOf(row)
    // A space selects, except within a name that is being typed.
    const act = event.key === ' ' && isTyping(event) ? undefined : actions[event.key]
    if (act) {
      event.preventDefault()
      typedAt = -Infinity
      act(row, index)
    } else if (event.key.length === 1) {
      // A space would scroll.
      if (event.key === ' ') event.preventDefault()
      findTyped(event, index)
    }
  }
}

/**
 * The index of the row whose name begins as typed; -1 for none.
 *
 * @param typed The letters typed so far, in lower case. One letter, repeated or not, moves to the next
 *   row that begins with it; several letters stay at the current row if it matches.
 * @param from The index of the row that has the keyboard.
 * @param nameAt The name of a row, in small letters.
 */
export function rowTyped(
  typed: string,
  from: number,
  count: number,
  nameAt: (index: number) => string,
): number {
  const isOneLetter = [...typed].every((letter) => letter === typed[0])
  const prefix = isOneLetter ? typed.slice(0, 1) : typed
  const first = isOneLetter ? from + 1 : from
  for (let step = 0; step < count; step += 1) {
    const index = (first + step) % count
    if (nameAt(index).startsWith(prefix)) return index
  }
  return -1
}
