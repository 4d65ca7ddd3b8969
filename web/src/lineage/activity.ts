/** Whether a record, or anything below it, may still change. */
import type { ShownStatus, TreeNode } from '../api/shapes'
import { childRecords, unplacedRecords } from './rows'

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

export function treeActivity(top: TreeNode): Activity {
  let found: Activity = 'ended'
  const waiting: TreeNode[] = [top]
  for (let record = waiting.pop(); record; record = waiting.pop()) {
    const activity = activityOf(record.status)
    if (activity === 'active') return 'active'
    if (activity === 'uncertain') found = 'uncertain'
    for (const child of childRecords(record)) waiting.push(child)
    if (record.kind === 'plan') for (const child of unplacedRecords(record)) waiting.push(child)
  }
  return found
}

/** Whether a tool goes on though its call was given up on, as far as is known. */
export function runsOn(record: TreeNode): boolean {
  return record.kind === 'toolCall' && record.stillRunning === true && record.lateStatus === null
}
