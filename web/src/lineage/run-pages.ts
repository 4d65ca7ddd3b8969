/** The run list as pages come in: loaded ones stay while the newest are read again. */
import type { Run, RunPage } from '../api/shapes'

export const NO_RUNS: RunPage = { items: [], nextCursor: null }

/** Adds the next page below what is loaded. */
export function appendPage(loaded: RunPage, next: RunPage): RunPage {
  const known = new Set(loaded.items.map((run) => run.rootPlanId))
  return {
    items: [...loaded.items, ...next.items.filter((run) => !known.has(run.rootPlanId))],
    nextCursor: next.nextCursor,
  }
}

/**
 * Takes over the newest runs, read again. Older loaded ones stay below them where the two meet;
 * where so many new ones came that they do not, only the fresh ones stay, so that none is skipped.
 */
export function refreshPage(loaded: RunPage, fresh: RunPage): RunPage {
  const last = fresh.items.at(-1)
  const meeting = last ? loaded.items.findIndex((run) => run.rootPlanId === last.rootPlanId) : -1
  if (meeting < 0 || fresh.nextCursor === null) return fresh
  const older: Run[] = loaded.items.slice(meeting + 1)
  if (older.length === 0) return fresh
  return { items: [...fresh.items, ...older], nextCursor: loaded.nextCursor }
}
