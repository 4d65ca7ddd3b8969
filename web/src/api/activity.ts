/** Whether a record may still change, by its status. */
import type { ShownStatus, TreeNode } from './shapes'

export type Activity =
  /** Something is running or waits for its turn. */
  | 'active'
  /** Nothing is known to run, yet more may come: the process went silent, or records are missing. */
  | 'uncertain'
  | 'ended'

export function activityOf(status: ShownStatus): Activity {
  switch (status) {
    case 'pending':
    case 'running':
      return 'active'
    case 'unknown':
    case 'abandoned':
      return 'uncertain'
    case 'cancelled':
    case 'failed':
    case 'succeeded':
      return 'ended'
  }
}

/** A recorder that was silent for so long may be dead, although its lease has not expired. */
const SILENCE = 60_000

/**
 * Since when an open run has been silent, in milliseconds since 1970; null if it was heard of lately.
 *
 * @param now The reader's clock.
 */
export function silentSince(
  run: { status: ShownStatus; seenAt: string | null },
  now: number,
): number | null {
  if (run.seenAt === null || activityOf(run.status) === 'ended') return null
  const seen = Date.parse(run.seenAt)
  return now - seen > SILENCE ? seen : null
}

/** Whether a tool still runs although its call was given up. */
export function runsOn(record: TreeNode): boolean {
  return record.kind === 'toolCall' && record.stillRunning === true
}
