import { unref } from './server.js'
import type { TracerServer } from './server.js'
import type { SdkSpan } from './span.js'
import { withoutTracing } from './suppression.js'

/** How soon after the spans a lease is renewed, so that the server has projected them. */
const SETTLED_MILLIS = 2_000
/** When to try again if the server did not answer. */
const RETRY_MILLIS = 10_000
/** How many traces with open spans are followed. */
const MAX_TRACES = 1_000

interface OpenTrace {
  readonly spans: Set<string>
  /** When its latest spans were stored. */
  storedAt: number
  /** When to renew its lease; infinite before any span was stored. */
  dueAt: number
}

/**
 * Renews the lease of each trace that has open spans in this process.
 *
 * So a tool that takes hours is shown as running, and open spans of a killed process are shown as
 * abandoned when the lease expires.
 */
export class Heartbeats {
  readonly #server: TracerServer
  readonly #traces = new Map<string, OpenTrace>()
  readonly #stop = new AbortController()
  #timer: ReturnType<typeof setTimeout> | undefined
  #wakesAt = Infinity

  constructor(server: TracerServer) {
    this.#server = server
  }

  spanStarted(span: SdkSpan): void {
    const { traceId, spanId } = span.spanContext()
    let trace = this.#traces.get(traceId)
    if (trace === undefined) {
      const [oldest] = this.#traces.keys()
      if (oldest !== undefined && this.#traces.size >= MAX_TRACES) this.#traces.delete(oldest)
      trace = { spans: new Set(), storedAt: 0, dueAt: Infinity }
      this.#traces.set(traceId, trace)
    }
    trace.spans.add(spanId)
  }

  spanEnded(span: SdkSpan): void {
    const { traceId, spanId } = span.spanContext()
    const trace = this.#traces.get(traceId)
    trace?.spans.delete(spanId)
    if (trace?.spans.size === 0) this.#traces.delete(traceId)
  }

  /** Notes that spans of these traces were stored, which gives the traces a lease of another length. */
  spansStored(traceIds: readonly string[]): void {
    const now = Date.now()
    for (const traceId of new Set(traceIds)) {
      const trace = this.#traces.get(traceId)
      if (trace === undefined) continue
      trace.storedAt = now
      trace.dueAt = Math.min(trace.dueAt, now + SETTLED_MILLIS)
      this.#wakeAt(trace.dueAt)
    }
  }

  stop(): void {
    this.#stop.abort()
    clearTimeout(this.#timer)
    this.#traces.clear()
  }

  #wakeAt(moment: number): void {
    if (moment >= this.#wakesAt || this.#stop.signal.aborted) return
    clearTimeout(this.#timer)
    this.#wakesAt = moment
    this.#timer = setTimeout(
      () => withoutTracing(() => void this.#renewDue()),
      Math.max(0, moment - Date.now()),
    )
    unref(this.#timer)
  }

  async #renewDue(): Promise<void> {
    for (const [traceId, trace] of this.#traces) {
      if (trace.dueAt > Date.now()) continue
      const renewedAt = Date.now()
      const renewAfter = await this.#server.renewLease(traceId, this.#stop.signal)
      const isSettled = renewedAt - trace.storedAt >= SETTLED_MILLIS
      trace.dueAt = isSettled
        ? renewedAt + (renewAfter ?? RETRY_MILLIS)
        : trace.storedAt + SETTLED_MILLIS
    }
    this.#wakesAt = Infinity
    const next = Math.min(...[...this.#traces.values()].map((trace) => trace.dueAt))
    if (Number.isFinite(next)) this.#wakeAt(next)
  }
}
