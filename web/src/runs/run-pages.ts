/** The run list as pages come in: loaded ones stay while the newest are read again. */
import type { Run, RunPage } from '../api/shapes'
import { activityOf } from '../api/activity'

export const NO_RUNS: RunPage = {
  items: [],
  nextCursor: null,
  searchedBackTo: null,
  indexedUpTo: null,
}

/** Adds the next page below the loaded runs. */
export function appendPage(loaded: RunPage, next: RunPage): RunPage {
  const known = new Set(loaded.items.map((run) => run.rootPlanId))
  return {
    items: [...loaded.items, ...next.items.filter((run) => !known.has(run.rootPlanId))],
    nextCursor: next.nextCursor,
    searchedBackTo: next.searchedBackTo,
    indexedUpTo: next.indexedUpTo,
  }
}

/**
 * Takes over the newest runs, read again. Older loaded ones stay below them if the two meet;
 * where so many new ones came that they do not, only the fresh ones stay, so that none is skipped.
 * Search results are replaced as far as the search reached; older ones stay.
 */
export function refreshPage(loaded: RunPage, fresh: RunPage): RunPage {
  if (fresh.searchedBackTo) {
    const edge = Date.parse(fresh.searchedBackTo)
    const older = loaded.items.filter((run) => startOf(run) < edge)
    return { ...loaded, items: [...fresh.items, ...older] }
  }
  const last = fresh.items.at(-1)
  const meeting = last ? loaded.items.findIndex((run) => run.rootPlanId === last.rootPlanId) : -1
  if (meeting < 0 || fresh.nextCursor === null) return fresh
  const older: Run[] = loaded.items.slice(meeting + 1)
  if (older.length === 0) return fresh
  return { ...loaded, items: [...fresh.items, ...older] }
}

/**
 * Updates the runs of a list that is sorted by a value. Their order is of the time they were
 * loaded, so that no run is skipped or listed twice by the next page.
 */
export function updatePage(loaded: RunPage, fresh: RunPage): RunPage {
  const updated = new Map(fresh.items.map((run) => [run.rootPlanId, run]))
  return { ...loaded, items: loaded.items.map((run) => updated.get(run.rootPlanId) ?? run) }
}

/**
 * Returns the runs that are new since a sorted list was loaded.
 *
 * @param before The latest runs when the list was loaded.
 * @param now The latest runs now.
 * @param listed The runs of the list.
 */
export function newerThan(
  before: readonly Run[],
  now: readonly Run[],
  listed: readonly Run[],
): readonly Run[] {
  const known = new Set([...before, ...listed].map((run) => run.rootPlanId))
  // Where a run was deleted, an older one moves up among the latest.
  const oldest = before.length > 0 ? startOf(before.at(-1)!) : -Infinity
  return now.filter((run) => !known.has(run.rootPlanId) && startOf(run) >= oldest)
}

/** The start of a run, by which the list is ordered; without a start, its first record. */
function startOf(run: Run): number {
  return Date.parse(run.startedAt ?? run.recordedAt ?? '')
}

/** The list as its reader left it: without the newer runs above `topId`. */
export function below(loaded: RunPage, topId: string | null): { runs: Run[]; waiting: number } {
  const top = loaded.items.findIndex((run) => run.rootPlanId === topId)
  const waiting = Math.max(0, top)
  return { runs: waiting === 0 ? loaded.items : loaded.items.slice(waiting), waiting }
}

/**
 * How many runs to read again so that all that may still change are among them.
 *
 * @param least At least so many, for new ones.
 * @param most At most so many, however old the last open one is.
 */
export function worthReading(loaded: RunPage, least: number, most: number): number {
  const last = loaded.items.findLastIndex((run) => activityOf(run.status) !== 'ended')
  return Math.min(Math.max(least, last + 1), most)
}
