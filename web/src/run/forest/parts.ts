/** When runs that continue others, and agents in the background, ran relative to their call. */
import { useI18n } from 'vue-i18n'
import { activityOf } from '../../api/activity'
import type { PlanNode } from '../../api/shapes'
import { formatDuration } from '../../lib/formatting'
import { ancestors, isRecord, recordsOf, type RecordRow, type Row } from './rows'

export interface Boundary {
  /** Whether the part began before what it continues had ended. */
  isInside: boolean
  /** Milliseconds after the end of what it continues; inside of it, after its start. */
  gap: number | null
  isByOtherProcess: boolean
}

/** How the part of a piece of work that begins at a row follows what it continues; otherwise null. */
export function boundaryOf(row: Row): Boundary | null {
  if (!isRecord(row) || row.record.kind !== 'plan' || !row.record.continues) return null
  const { rootPlanId, isInside, isByOtherProcess } = row.record.continues
  const before = ancestors(row).findLast(
    (each) =>
      each.kind === 'toolCall' || recordsOf(each).some((record) => isPlan(record, rootPlanId)),
  )
  const [at, from] = [row.span?.start, isInside ? before?.span?.start : before?.span?.end]
  const isKnown = at !== undefined && from !== undefined && from !== Infinity
  return { isInside, gap: isKnown ? Math.max(0, at - from) : null, isByOtherProcess }
}

function isPlan(record: RecordRow['record'], planId: string): boolean {
  return record.kind === 'plan' && record.planId === planId
}

interface Background {
  agent: PlanNode
  /** When the agent began and ended, in milliseconds after the start of its call. */
  from: number
  /** Infinity while it works. */
  to: number
}

/** An agent shorter than this after its call is no agent in the background: clocks differ. */
const LEAST = 1_000

/** When the agent worked that a call started, if it went on after the call had ended. */
export function backgroundOf(row: RecordRow): Background | null {
  if (row.kind !== 'toolCall' || activityOf(row.record.status) !== 'ended') return null
  const call = row.span
  for (const each of [...row.carried, ...row.children]) {
    if (!isRecord(each) || each.record.kind !== 'plan' || each.span === null || call === null)
      continue
    if (each.record.continues && !each.record.continues.isInside) continue
    if (each.span.end < call.end + LEAST) continue
    const from = Math.max(0, each.span.start - call.start)
    return { agent: each.record, from, to: each.span.end - call.start }
  }
  return null
}

export function useBackgroundTexts() {
  const { t, locale } = useI18n()
  /** When an agent in the background ran relative to its call, in short and as a sentence. */
  return ({ from, to }: Background) => {
    const times = { from: formatDuration(from, locale.value), to: formatDuration(to, locale.value) }
    return to === Infinity
      ? { text: t('detail.inBackground'), title: t('notice.inBackground', times) }
      : { text: t('detail.background', times), title: t('notice.background', times) }
  }
}
