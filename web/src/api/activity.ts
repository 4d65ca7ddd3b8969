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

/** Whether a tool still runs although its call was given up. */
export function runsOn(record: TreeNode): boolean {
  return record.kind === 'toolCall' && record.stillRunning === true && record.lateStatus === null
}
