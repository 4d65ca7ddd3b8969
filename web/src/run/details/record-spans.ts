/** The original spans of a record: whether its run has any, and those of the record on demand. */
import { onMounted, shallowRef } from 'vue'
import { listSpans } from '../../api/client'
import type { Failure } from '../../api/outcome'
import type { LogRecord, Span } from '../../api/shapes'

const PAGE = 20

/** Runs that are known to have spans: they do not lose them. */
const withSpans = new Set<string>()

export function useRecordSpans(rootPlanId: string, recordId: string) {
  const any = shallowRef(withSpans.has(rootPlanId))
  const spans = shallowRef<readonly Span[]>([])
  const logs = shallowRef<readonly LogRecord[]>([])
  const loaded = shallowRef(false)
  const loading = shallowRef(false)
  const failure = shallowRef<Failure | null>(null)
  let nextCursor: string | null = null
  const more = shallowRef(false)

  onMounted(async () => {
    if (any.value) return
    const answer = await listSpans(rootPlanId, { limit: 1 })
    any.value = answer.ok && answer.value.items.length > 0
    if (any.value) withSpans.add(rootPlanId)
  })

  /** Loads the first page, or the one after those that are there. */
  async function load() {
    if (loading.value) return
    loading.value = true
    const query = { recordId, limit: PAGE, cursor: nextCursor }
    const answer = await listSpans(rootPlanId, query)
    loading.value = false
    failure.value = answer.ok ? null : answer.failure
    if (!answer.ok) return
    spans.value = [...spans.value, ...answer.value.items]
    logs.value = [...logs.value, ...answer.value.logs]
    nextCursor = answer.value.nextCursor
    more.value = nextCursor !== null
    loaded.value = true
  }

  return { any, spans, logs, loaded, loading, failure, more, load }
}
