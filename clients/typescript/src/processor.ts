import { TraceFlags } from '@opentelemetry/api'

import { Heartbeats } from './heartbeats.js'
import { encodeSpan } from './otlp.js'
import type { EncodedSpan } from './otlp.js'
import { TracerServer, pause } from './server.js'
import type { SdkSpan } from './span.js'
import { withoutTracing } from './suppression.js'

/** How many spans may be queued, by default. */
const MAX_WAITING = 8192
/** How many spans are sent at once. */
const BATCH_SPANS = 256
/** How long spans wait for others of the same batch, by default. */
const DELAY_MILLIS = 100
/** How long `forceFlush` and `shutdown` wait for the server. */
const FLUSH_MILLIS = 30_000
/** How long a process that has nothing else to do waits for the server. */
const EXIT_MILLIS = 5_000
/** How long the attributes of a resource may take to become known. */
const RESOURCE_MILLIS = 2_000
const LOCAL_SERVER = 'http://127.0.0.1:8420'

/** How spans are sent. */
export interface TracerSpanProcessorOptions {
  /** The server's address. The default is `TRACER_URL`, then `http://127.0.0.1:8420`. */
  readonly url?: string
  /** The API key. The default is `TRACER_API_KEY`. */
  readonly apiKey?: string
  /** How many spans may be queued. The default is 8192. */
  readonly maxWaiting?: number
  /** How long spans wait for others of the same batch. The default is 100 ms. */
  readonly delayMillis?: number
  /** Receives messages about dropped and refused spans and outages. The default is `console.error`. */
  readonly report?: (message: string) => void
}

interface QueuedSpan {
  readonly span: SdkSpan
  readonly isStart: boolean
}

/** How many starts and ended spans were dropped or refused. */
export interface Dropped {
  readonly starts: number
  readonly spans: number
}

/**
 * Sends each sampled span to a Tracer server when it starts, and again when it ends.
 *
 * It works in the background and never throws. While the server does not answer, it retries. If the
 * queue is full, it drops starts first, then the oldest spans, and reports how many.
 */
export class TracerSpanProcessor {
  readonly #server: TracerServer
  readonly #heartbeats: Heartbeats
  readonly #maxWaiting: number
  readonly #delayMillis: number
  readonly #report: (message: string) => void
  readonly #starts = new Map<string, SdkSpan>()
  readonly #ends = new Set<SdkSpan>()
  #sending: Promise<void> | undefined
  #urgent = new AbortController()
  #stop = new AbortController()
  readonly #flushing = new Set<() => void>()
  /** How many times the queue was emptied, and how many of those spans were sent or dropped. */
  #queuesTaken = 0
  #queuesSent = 0
  #isShutDown: boolean
  #dropped = { starts: 0, spans: 0 }
  #reported = { starts: 0, spans: 0 }

  constructor(options: TracerSpanProcessorOptions = {}) {
    const environment: Record<string, string | undefined> = globalThis.process?.env ?? {}
    this.#report = options.report ?? ((message) => console.error(`tracer: ${message}`))
    this.#server = new TracerServer(
      (options.url || environment['TRACER_URL'] || LOCAL_SERVER).replace(/\/+$/, ''),
      options.apiKey ?? environment['TRACER_API_KEY'],
      (message) => this.#tell(message),
    )
    this.#heartbeats = new Heartbeats(this.#server)
    this.#maxWaiting = options.maxWaiting ?? MAX_WAITING
    this.#delayMillis = options.delayMillis ?? DELAY_MILLIS
    this.#isShutDown = ['1', 'true', 'yes', 'on'].includes(
      (environment['TRACER_DISABLED'] ?? '').toLowerCase(),
    )
    globalThis.process?.on?.('beforeExit', this.#atExit)
  }

  /** How many starts and ended spans were dropped or refused since the processor was created. */
  get dropped(): Dropped {
    return { ...this.#dropped }
  }

  /** Queues the start of a span. */
  onStart(span: SdkSpan): void {
    if (this.#isShutDown || !isSampled(span)) return
    this.#starts.set(keyOf(span), span)
    this.#heartbeats.spanStarted(span)
    this.#spanAdded()
  }

  /** Queues the end of a span. If its start is still queued, only the end is sent. */
  onEnd(span: SdkSpan): void {
    if (this.#isShutDown || !isSampled(span)) return
    this.#starts.delete(keyOf(span))
    this.#heartbeats.spanEnded(span)
    this.#ends.add(span)
    this.#spanAdded()
  }

  /** Resolves when all earlier spans are in the store, or after 30 seconds. */
  async forceFlush(): Promise<void> {
    await this.#flush(FLUSH_MILLIS)
  }

  /** Sends queued spans, for up to 30 seconds, and accepts no more. */
  async shutdown(): Promise<void> {
    this.#isShutDown = true
    globalThis.process?.off?.('beforeExit', this.#atExit)
    await this.#flush(FLUSH_MILLIS)
    this.#heartbeats.stop()
    this.#giveUp()
  }

  readonly #atExit = async (): Promise<void> => {
    if (this.#sending === undefined) return
    await this.#flush(EXIT_MILLIS)
    this.#giveUp()
  }

  #spanAdded(): void {
    if (this.#starts.size + this.#ends.size > this.#maxWaiting) {
      const [start] = this.#starts.keys()
      const [end] = this.#ends
      if (start !== undefined) {
        this.#starts.delete(start)
        this.#dropped.starts += 1
      } else if (end !== undefined) {
        this.#ends.delete(end)
        this.#dropped.spans += 1
      }
    }
    if (this.#sending === undefined) {
      this.#sending = withoutTracing(() => this.#send())
    } else if (this.#starts.size + this.#ends.size === BATCH_SPANS) {
      this.#urgent.abort()
    }
  }

  /** Sends queued spans until the queue is empty. Never rejects. */
  async #send(): Promise<void> {
    while (this.#starts.size + this.#ends.size > 0) {
      await pause(this.#delayMillis, this.#urgent.signal)
      this.#urgent = new AbortController()
      const spans: QueuedSpan[] = [
        ...[...this.#ends].map((span) => ({ span, isStart: false })),
        ...[...this.#starts.values()].map((span) => ({ span, isStart: true })),
      ]
      this.#ends.clear()
      this.#starts.clear()
      this.#queuesTaken += 1
      for (let begin = 0; begin < spans.length; begin += BATCH_SPANS) {
        await this.#sendBatch(spans.slice(begin, begin + BATCH_SPANS))
      }
      this.#queuesSent += 1
      for (const notify of this.#flushing) notify()
    }
    this.#sending = undefined
  }

  async #sendBatch(spans: readonly QueuedSpan[]): Promise<void> {
    const stop = this.#stop.signal
    await this.#resourcesKnown(spans)
    const batch = spans.flatMap((each) => this.#encoded(each))
    if (batch.length === 0) return
    try {
      const refused = await this.#server.writeSpans(
        batch.map(({ encoded }) => encoded),
        stop,
      )
      this.#dropped.spans += refused
      this.#reported.spans += refused
      this.#heartbeats.spansStored(batch.map(({ span }) => span.spanContext().traceId))
    } catch (error) {
      for (const { isStart } of batch) this.#dropped[isStart ? 'starts' : 'spans'] += 1
      if (!stop.aborted) this.#tell(`Spans could not be sent: ${String(error)}`)
    }
    this.#reportDropped()
  }

  /** Waits a while for attributes that detectors of the resource have not determined yet. */
  async #resourcesKnown(spans: readonly QueuedSpan[]): Promise<void> {
    const pending = new Set(spans.map(({ span }) => span.resource))
    for (const resource of pending) {
      if (!resource.asyncAttributesPending) pending.delete(resource)
    }
    if (pending.size === 0) return
    const known = new AbortController()
    void Promise.allSettled([...pending].map((each) => each.waitForAsyncAttributes?.())).then(() =>
      known.abort(),
    )
    await pause(RESOURCE_MILLIS, known.signal)
  }

  #encoded({ span, isStart }: QueuedSpan): (QueuedSpan & { encoded: EncodedSpan })[] {
    // A start that has ended since is in the queue again, as ended.
    if (isStart && span.ended) return []
    try {
      return [{ span, isStart, encoded: encodeSpan(span) }]
    } catch (error) {
      this.#dropped[isStart ? 'starts' : 'spans'] += 1
      this.#tell(`A span could not be encoded: ${String(error)}`)
      return []
    }
  }

  /** Waits until the spans that are queued now are sent. */
  async #flush(millis: number): Promise<void> {
    const goal = this.#queuesTaken + (this.#starts.size + this.#ends.size > 0 ? 1 : 0)
    this.#urgent.abort()
    await new Promise<void>((resolve) => {
      const check = (): void => {
        if (this.#queuesSent < goal) return
        this.#flushing.delete(check)
        clearTimeout(timer)
        resolve()
      }
      // Unlike all other timers, this one keeps the process running.
      const timer = setTimeout(() => {
        this.#flushing.delete(check)
        resolve()
      }, millis)
      this.#flushing.add(check)
      check()
    })
  }

  /** Drops queued spans and those of the current request, and reports their number. */
  #giveUp(): void {
    this.#dropped.starts += this.#starts.size
    this.#dropped.spans += this.#ends.size
    this.#starts.clear()
    this.#ends.clear()
    this.#stop.abort()
    this.#stop = new AbortController()
    this.#reportDropped()
  }

  #reportDropped(): void {
    const starts = this.#dropped.starts - this.#reported.starts
    const spans = this.#dropped.spans - this.#reported.spans
    if (starts === 0 && spans === 0) return
    this.#reported = { ...this.#dropped }
    this.#tell(`Dropped ${starts} starts of spans and ${spans} ended spans.`)
  }

  #tell(message: string): void {
    try {
      this.#report(message)
    } catch {
      // Recording never changes what the program does.
    }
  }
}

function isSampled(span: SdkSpan): boolean {
  return (span.spanContext().traceFlags & TraceFlags.SAMPLED) !== 0
}

function keyOf(span: SdkSpan): string {
  const { traceId, spanId } = span.spanContext()
  return traceId + spanId
}
