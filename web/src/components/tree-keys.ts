/** Which keys the tree acts on. */

const MOVES = new Set([
  'ArrowUp',
  'ArrowDown',
  'ArrowLeft',
  'ArrowRight',
  'Home',
  'End',
  'PageUp',
  'PageDown',
  'Tab',
])

/**
 * Whether a key moves in the tree or belongs to a name that is typed to be found. Everything else
 * (Shift by itself, Escape, the Enter that selects) would be taken for a part of that name.
 */
export function isForTree(event: KeyboardEvent): boolean {
  return MOVES.has(event.key) || (event.key.length === 1 && event.key !== ' ')
}
