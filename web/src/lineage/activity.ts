/** Whether a record, or anything below it, may still change. */
import type { ShownStatus, TreeNode } from '../api/shapes'
import { isRecord, type Forest } from './rows'

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

export function treeActivity(forest: Forest): Activity {
  let found: Activity = 'ended'
  for (const row of forest.byKey.values()) {
    const activity = isRecord(row) ? activityOf(row.record.status) : 'ended'
    if (activity === 'active') return 'active'
    if (activity === 'uncertain') found = 'uncertain'
  }
  return found
}

/** Whether a tool goes on though its call was given up on, as far as is known. */
export function runsOn(record: TreeNode): boolean {
  return record.kind === 'toolCall' && record.stillRunning === true && record.lateStatus === null
}
