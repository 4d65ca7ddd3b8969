/** What a record is called, and one line about it, in the reader's language. */
import { useI18n } from 'vue-i18n'
import type { TreeNode } from '../../api/shapes'
import { gist, visibleText } from '../../lib/payload-text'
import type { Row } from './rows'

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
        return shown(record.title) || emptyName(record, t('unnamed.plan'))
      case 'step':
        return shown(record.agentName) || t('unnamed.step', { number })
      case 'thinkAct':
        return t('unnamed.thinkAct', { number })
      case 'toolCall':
        return shown(record.name) || emptyName(record, t('unnamed.toolCall'))
    }
  }

  function emptyName(record: TreeNode, name: string): string {
    return record.status === 'unknown' ? t('unnamed.record') : name
  }

  function gistOf(record: TreeNode): string {
    switch (record.kind) {
      case 'plan':
        return gist(record.error?.message || record.summary || record.userRequest)
      case 'step':
        return gist(record.request)
      case 'thinkAct':
        return gist(record.thought || record.model || record.requestedModel)
      case 'toolCall':
        return gist(record.arguments)
    }
  }

  function rowName(row: Row): string {
    return row.kind === 'unplaced' ? t('kind.unplaced') : nameOf(row.record)
  }

  return { kindOf, nameOf, gistOf, rowName }
}

function shown(name: string | null): string {
  return name === null ? '' : visibleText(name.slice(0, 500))
}
