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
  /** Puts the keyboard on the row at a place. */
  focus: (place: number) => void
}

/** Gives what to call with a key that was pressed on a row. */
export function treeKeys(tree: WalkedTree): (event: KeyboardEvent, row: Row) => void {
  let typed = ''
  let typedAt = -Infinity

  function goTo(place: number) {
    tree.focus(Math.min(Math.max(0, place), tree.rows().length - 1))
  }

  const actions: Record<string, (row: Row, place: number) => void> = {
    ArrowDown: (_, place) => goTo(place + 1),
    ArrowUp: (_, place) => goTo(place - 1),
    PageDown: (_, place) => goTo(place + tree.capacity()),
    PageUp: (_, place) => goTo(place - tree.capacity()),
    Home: () => goTo(0),
    End: () => goTo(Infinity),
    ArrowRight: (row, place) => {
      if (row.children.length === 0) return
      if (tree.isOpen(row)) goTo(place + 1)
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
    const place = tree.rows().indexOf(row)
    // A space selects, except within a name that is being typed.
    const act = event.key === ' ' && isTyping(event) ? undefined : actions[event.key]
    if (act) {
      event.preventDefault()
      typedAt = -Infinity
      act(row, place)
    } else if (event.key.length === 1) {
      // A space would scroll.
      if (event.key === ' ') event.preventDefault()
      findTyped(event, place)
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
  const sought = isOneLetter ? typed.slice(0, 1) : typed
  const first = isOneLetter ? from + 1 : from
  for (let step = 0; step < count; step += 1) {
    const index = (first + step) % count
    if (nameAt(index).startsWith(sought)) return index
  }
  return -1
}
