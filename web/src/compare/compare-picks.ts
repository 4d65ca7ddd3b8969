/** Runs that are worth comparing with one. */
import type { Run } from '../api/shapes'

/** Relations of two runs, the closest first. */
export const RELATIONS = ['session', 'title', 'agent'] as const

export interface Pick {
  run: Run
  relation: (typeof RELATIONS)[number]
  /** The ids of the runs to compare, the earlier one on the left. */
  left: string
  right: string
}

/**
 * Runs to compare with one: those of its session, then of its title, then of its agent.
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
      relation: relationOf(run, other),
      left: left.rootPlanId,
      right: right.rootPlanId,
    }
  })
  const rank = ({ relation }: Pick) => RELATIONS.indexOf(relation)
  // Sorting is stable: within each group the order stays.
  return picks.sort((one, other) => rank(one) - rank(other)).slice(0, most)
}

/** The latest earlier run of the session, else of the title, or null. */
export function previousOf(picks: readonly Pick[]): Pick | null {
  const earlier = picks.filter(
    (pick) => pick.relation !== 'agent' && pick.left === pick.run.rootPlanId,
  )
  const closest = earlier.filter((pick) => pick.relation === earlier[0]!.relation)
  return closest.reduce<Pick | null>(
    (latest, pick) => (latest === null || begun(pick.run) > begun(latest.run) ? pick : latest),
    null,
  )
}

function relationOf(run: Run, other: Run): Pick['relation'] {
  if (run.sessionId !== null && run.sessionId === other.sessionId) return 'session'
  return run.title === other.title ? 'title' : 'agent'
}

function begun(run: Run): number {
  return run.startedAt === null ? Infinity : Date.parse(run.startedAt)
}
