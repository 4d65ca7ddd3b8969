/** Finding a row by the start of its name, as it is typed. */

/**
 * The index of the row that is meant; -1 for none.
 *
 * @param typed What was typed so far, in small letters. One letter, however often, goes on to the
 *   next row; more letters stay where they fit.
 * @param from Where the keyboard is.
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
