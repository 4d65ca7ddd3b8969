/** The name of a record, and one line about it, in the reader's language. */
import { useI18n } from 'vue-i18n'
import type { ThinkActNode, ToolCallNode, TreeNode } from '../../api/shapes'
import { arrowFor, excerpt, prose, visibleText } from '../../lib/payload-text'
import { isRecord, planOf, type Row } from './rows'

export function useRecordTexts() {
  const { t } = useI18n()

  function kindOf(record: TreeNode): string {
    if (record.kind === 'plan')
      return t(record.parentPlanId === null ? 'kind.plan' : 'kind.subPlan')
    if (record.kind === 'toolCall' && record.parentToolCallId !== null) return t('kind.batchItem')
    return t(`kind.${record.kind}`)
  }

  function nameOf(record: TreeNode): string {
    const number = record.position === null ? '?' : record.position + 1
    switch (record.kind) {
      case 'plan':
        return shown(record.agentName) || shown(record.title) || emptyName(record, 'plan')
      case 'step':
        return shown(record.agentName) || t('unnamed.step', { number })
      case 'thinkAct':
        return t('unnamed.thinkAct', { number })
      case 'toolCall':
        return shown(record.name) || emptyName(record, 'toolCall')
    }
  }

  function emptyName(record: TreeNode, kind: 'plan' | 'toolCall'): string {
    return record.status === 'unknown' ? t('unnamed.record') : t(`unnamed.${kind}`)
  }

  function rowName(row: Row): string {
    return row.kind === 'unplaced' ? t('kind.unplaced') : nameOf(row.record)
  }

  /** The sub-agent that a tool call's row carries, or an empty text. */
  function agentOf(row: Row): string {
    const plan = row.kind === 'toolCall' ? planOf(row) : null
    return plan ? nameOf(plan) : ''
  }

  return { kindOf, nameOf, rowName, agentOf }
}

/** One line about a row: its request, choice or arguments, and its outcome. */
export function gistOf(row: Row): string {
  if (!isRecord(row)) return ''
  const { record } = row
  switch (record.kind) {
    case 'plan': {
      const asked = record.title ?? record.userRequest
      return joined(prose(asked === record.agentName ? record.userRequest : asked), outcome(record))
    }
    case 'step':
      return joined(prose(record.request), outcome(record))
    case 'thinkAct':
      return modelGist(record, row)
    case 'toolCall':
      return joined(valuesOf(record), outcome(record))
  }
}

function modelGist(record: ThinkActNode, row: Row): string {
  const chosen = row.children
    .filter(isRecord)
    .flatMap((child) => (child.record.kind === 'toolCall' ? [excerpt(child.record.name, 40)] : []))
  const calls = chosen.length > 0 ? `→ ${[...new Set(chosen)].join(', ')}` : ''
  return [calls, prose(record.thought)].filter(Boolean).join('  ') || excerpt(errorOf(record))
}

function outcome(record: TreeNode): string {
  const error = errorOf(record)
  if (error) return excerpt(error, 80)
  if (record.kind === 'plan') return prose(record.summary, 80)
  if (record.kind === 'step') return prose(record.result, 80)
  return record.kind === 'toolCall' ? excerpt(record.result, 80) : ''
}

function errorOf({ error }: TreeNode): string | null {
  return error && (error.message || error.type)
}

function joined(what: string, outcome: string): string {
  return outcome ? `${what} ${arrowFor(what)} ${outcome}` : what
}

/** The values of a call's arguments without names and braces; the text itself if it is cut. */
function valuesOf(call: ToolCallNode): string {
  const text = call.arguments
  if (!text?.startsWith('{') || call.argumentsTruncated) return excerpt(text, 80)
  try {
    const values = Object.values(JSON.parse(text) as object)
    return excerpt(
      values.map((each) => (typeof each === 'string' ? each : JSON.stringify(each))).join(', '),
      80,
    )
  } catch {
    return excerpt(text, 80)
  }
}

function shown(name: string | null): string {
  return name === null ? '' : visibleText(name.slice(0, 500)).trim()
}
