/** The runs that are picked to be compared, exported or deleted; in the address of the list. */
import { useAddress } from '../page/address'

const RUN_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** An address must not become longer than servers and chats accept. */
export const MOST_PICKS = 50

/** The picked runs with one more; beyond the most, it replaces the last one. */
export function picksWith(picked: readonly string[], id: string): readonly string[] {
  return [...picked.slice(0, MOST_PICKS - 1), id]
}

/** The runs that an address names as picked, each once. */
export function readPicks(text: string | null): readonly string[] {
  const named = (text ?? '').split('.').filter((id) => RUN_ID.test(id))
  return [...new Set(named)].slice(0, MOST_PICKS)
}

export function writePicks(picked: readonly string[]): string | null {
  return picked.join('.') || null
}

/**
 * The picked runs in the order in which they are compared, the oldest on the left.
 *
 * @param listed The ids of the listed runs, newest first; a run that is not listed is older.
 */
export function oldestFirst(
  picked: readonly string[],
  listed: readonly string[],
): readonly string[] {
  const indexOf = (id: string) => (listed.includes(id) ? listed.indexOf(id) : listed.length)
  return [...picked].sort((one, other) => indexOf(other) - indexOf(one))
}

export function useRunPicks() {
  return useAddress('picked', 'replace', readPicks, writePicks)
}
