/** Runs that are worth comparing with one. */
import type { Run } from '../api/shapes'

export interface Pick {
  run: Run
  sameTitle: boolean
  /** The ids of the runs to compare, the earlier one on the left. */
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
  // Sorting is stable: within each group the order stays.
  return picks.sort((one, other) => Number(other.sameTitle) - Number(one.sameTitle)).slice(0, most)
}

function begun(run: Run): number {
  return run.startedAt === null ? Infinity : Date.parse(run.startedAt)
}
