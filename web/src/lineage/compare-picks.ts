/** Runs picked to be compared, and which are worth comparing with one. */
import type { Run } from '../api/shapes'

export interface Pick {
  run: Run
  sameTitle: boolean
  /** The runs to compare, what was before on the left. */
  left: string
  right: string
}

/**
 * Runs to compare with one, those of its own title first.
 *
 * @param lists Runs, each list newest first.
 */
export function picksFor(run: Run, lists: readonly (readonly Run[])[], most: number): Pick[] {
  const others = new Map<string, Run>()
  for (const list of lists) for (const each of list) others.set(each.rootPlanId, each)
  others.delete(run.rootPlanId)
  const picks = [...others.values()].map((other): Pick => {
    const [left, right] = begun(other) <= begun(run) ? [other, run] : [run, other]
    return {
      run: other,
      sameTitle: other.title === run.title,
      left: left.rootPlanId,
      right: right.rootPlanId,
    }
  })
  // Sorting keeps the order of what is alike.
  return picks.sort((one, other) => Number(other.sameTitle) - Number(one.sameTitle)).slice(0, most)
}

function begun(run: Run): number {
  return run.startedAt === null ? Infinity : Date.parse(run.startedAt)
}

const RUN_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** Two are compared: whoever picks a third changes the second. */
export function picksWith(picked: readonly string[], id: string): readonly string[] {
  return [...picked.slice(0, 1), id]
}

/** The runs that an address names as picked, each once. */
export function readPicks(text: string | null): readonly string[] {
  const named = (text ?? '').split('.').filter((id) => RUN_ID.test(id))
  return [...new Set(named)].slice(0, 2)
}

export function writePicks(picked: readonly string[]): string | null {
  return picked.join('.') || null
}

/**
 * The picked runs in the order in which they are compared, what was before on the left.
 *
 * @param listed The ids of the listed runs, newest first; what is not among them is older.
 */
export function oldestFirst(
  picked: readonly string[],
  listed: readonly string[],
): readonly string[] {
  const place = (id: string) => (listed.includes(id) ? listed.indexOf(id) : listed.length)
  return [...picked].sort((one, other) => place(other) - place(one))
}
