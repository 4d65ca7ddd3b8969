/** Finding text in a run: in names, arguments, results, thoughts and errors. */
import type { TreeNode } from '../../api/shapes'
import { visibleText } from '../../lib/payload-text'
import { folded, foldWithOffsets } from '../../lib/text-search'
import { recordId } from '../forest/records'
import { recordsOf, type Row } from '../forest/rows'

/** The texts of a record that are searched, what a reader sees first in front. */
export function searchedTexts(record: TreeNode): (string | null)[] {
  const error = [record.error?.type ?? null, record.error?.message ?? null, record.reason]
  switch (record.kind) {
    case 'plan':
      return [record.title, record.userRequest, record.summary, record.agentName, ...error]
    case 'step':
      return [record.agentName, record.request, record.result, ...error]
    case 'thinkAct':
      return [record.thought, record.model, record.requestedModel, ...error]
    case 'toolCall':
      return [
        record.name,
        record.arguments,
        record.result,
        record.effectiveArguments,
        record.stateChanges,
        ...error,
      ]
  }
}

/** Folding thousands of texts takes longer than looking through them; a changed record is another. */
const haystacks = new WeakMap<TreeNode, string>()

function haystackOf(record: TreeNode): string {
  let known = haystacks.get(record)
  if (known === undefined) {
    // A line break is in no folded text, so nothing is found across two texts.
    known = searchedTexts(record)
      .map((text) => folded(text ?? ''))
      .join('\n')
    haystacks.set(record, known)
  }
  return known
}

/** Whether a row's texts contain the query, or it is the row's whole id. */
export function isHit(row: Row, query: string): boolean {
  if (query === '') return false
  return recordsOf(row).some(
    (record) => haystackOf(record).includes(query) || recordId(record).toLowerCase() === query,
  )
}

/** Whether more was recorded than a search in the tree can see. */
export function isCut(record: TreeNode): boolean {
  switch (record.kind) {
    case 'plan':
      return record.userRequestTruncated || record.summaryTruncated
    case 'step':
      return record.requestTruncated || record.resultTruncated
    case 'thinkAct':
      return record.thoughtTruncated
    case 'toolCall':
      return (
        record.argumentsTruncated ||
        record.resultTruncated ||
        record.effectiveArgumentsTruncated ||
        record.stateChangesTruncated
      )
  }
}

const BEFORE = 10
const AFTER = 120

/**
 * The surroundings of the first hit in a record's texts, on one line; null where what the row shows
 * anyway has it, or nothing does.
 */
export function snippet(record: TreeNode, query: string, shown: readonly string[]): string | null {
  if (query === '' || shown.some((text) => folded(text).includes(query))) return null
  for (const text of searchedTexts(record)) {
    if (!text || !folded(text).includes(query)) continue
    const { text: plain, offsets } = foldWithOffsets(text)
    const start = offsets[plain.indexOf(query)]!
    const from = Math.max(0, start - BEFORE)
    const around = text.slice(from, start + query.length + AFTER).replace(/\s+/g, ' ')
    return (from > 0 ? '…' : '') + visibleText(around)
  }
  return null
}
