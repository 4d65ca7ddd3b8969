/** A run's records in a flat map, kept up to date by the changes of its stream. */
import type { Kind, PlanNode, RunChanges, TreeNode } from '../../api/shapes'

/**
 * By kind and id. The tree that was read at first is flattened; from then on children name their
 * parents, and a record's own lists of children are not read.
 */
export type Records = Map<string, TreeNode>

export function recordId(record: TreeNode): string {
  switch (record.kind) {
    case 'plan':
      return record.planId
    case 'step':
      return record.stepId
    case 'thinkAct':
      return record.thinkActId
    case 'toolCall':
      return record.toolCallId
  }
}

export function keyOf(record: TreeNode): string {
  return `${record.kind}:${recordId(record)}`
}

/** The records right below one in the API's hierarchy. */
function childRecords(record: TreeNode): readonly TreeNode[] {
  switch (record.kind) {
    case 'plan':
      // The API leaves the list out below the root plan, although its types require it.
      return [...record.agentExecutions, ...((record.unplaced as TreeNode[] | undefined) ?? [])]
    case 'step':
      return [...record.thinkActs, ...record.toolCalls, ...record.subPlans]
    case 'thinkAct':
      return record.toolCalls
    case 'toolCall':
      return [...record.toolCalls, ...record.subPlans]
  }
}

/** Returns the records of a hierarchy, parents first. No recursion: runs may nest deeply. */
export function readRecords(top: PlanNode): Records {
  const records: Records = new Map()
  const waiting: TreeNode[] = [top]
  for (let record = waiting.pop(); record; record = waiting.pop()) {
    records.set(keyOf(record), record)
    const below = childRecords(record)
    for (let at = below.length - 1; at >= 0; at -= 1) waiting.push(below[at]!)
  }
  return records
}

/** Applies a message of the stream. */
export function applyChanges(records: Records, { changed, removed }: RunChanges): void {
  for (const { kind, id } of removed) records.delete(`${kind}:${id}`)
  for (const record of changed) records.set(keyOf(record as TreeNode), record as TreeNode)
}

/** The parent of a record: the first of the records that it names which exists, or null. */
export function namedParent<Found>(
  record: TreeNode,
  byKey: ReadonlyMap<string, Found>,
): Found | null {
  const at = (kind: Kind, id: string | null) =>
    (id === null ? undefined : byKey.get(`${kind}:${id}`)) ?? null
  switch (record.kind) {
    case 'plan':
      return at('toolCall', record.toolCallId) ?? at('step', record.openedByStepId)
    case 'step':
      return at('plan', record.planId)
    case 'thinkAct':
      return at('step', record.stepId)
    case 'toolCall':
      return (
        at('toolCall', record.parentToolCallId) ??
        at('thinkAct', record.thinkActId) ??
        at('step', record.stepId)
      )
  }
}
