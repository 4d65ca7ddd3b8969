import { encodeRequest } from './otlp.js'
import type { EncodedSpan } from './otlp.js'

const ANSWER_MILLIS = 30_000
/** The size from which a request is compressed. */
const COMPRESSED_BYTES = 16 * 1024
const LONGEST_PAUSE_MILLIS = 10_000
const LONGEST_RETRY_AFTER_MILLIS = 60_000
const CHECK_KEY = 'Check TRACER_API_KEY.'
const CHECK_ADDRESS = 'Check that the server runs and that TRACER_URL is its address.'

/** Answers that concern the content of a request. Another request may be accepted. */
const REFUSALS = new Set([400, 413, 422])

/** The server cannot be used now; the same request may succeed later. */
class ServerUnavailable extends Error {
  constructor(
    message: string,
    readonly retryAfterMillis?: number,
  ) {
    super(message)
  }
}

interface Answer {
  readonly status: number
  readonly text: string
}

/** The HTTP interface of a Tracer server. */
export class TracerServer {
  readonly #headers: Record<string, string>
  readonly #report: (message: string) => void
  #problem: string | undefined

  constructor(
    readonly url: string,
    apiKey: string | undefined,
    report: (message: string) => void,
  ) {
    this.#headers = apiKey ? { authorization: `Bearer ${apiKey}` } : {}
    this.#report = report
  }

  /**
   * Sends spans until the server has stored or refused them.
   *
   * @returns How many spans it refused.
   * @throws The reason of `signal`, if that is aborted first.
   */
  async writeSpans(spans: readonly EncodedSpan[], signal: AbortSignal): Promise<number> {
    const body = await compressed(encodeRequest(spans))
    for (let attempt = 0; ; attempt += 1) {
      signal.throwIfAborted()
      try {
        const response = await this.#post('v1/traces', body, signal)
        const refusal = refusalOf(response)
        if (this.#problem !== undefined) {
          this.#problem = undefined
          this.#report(`The server at ${this.url} stores spans again.`)
        }
        if (!REFUSALS.has(response.status)) {
          if (refusal.count > 0) this.#report(`Spans were refused: ${refusal.message}`)
          return refusal.count
        }
        if (spans.length === 1) {
          this.#report(`A span was refused: ${response.status} ${refusal.message}`)
          return 1
        }
        break
      } catch (error) {
        if (!(error instanceof ServerUnavailable)) throw error
        this.#note(error.message)
        const limit = Math.min(LONGEST_PAUSE_MILLIS, 100 * 2 ** attempt)
        await pause(Math.max(error.retryAfterMillis ?? 0, Math.random() * limit), signal)
      }
    }
    const middle = spans.length >> 1
    return (
      (await this.writeSpans(spans.slice(0, middle), signal)) +
      (await this.writeSpans(spans.slice(middle), signal))
    )
  }

  /**
   * Renews the lease of a run of spans: for this time, its open spans count as running.
   *
   * @returns After how many milliseconds to renew it again; undefined if the server did not answer.
   */
  async renewLease(traceId: string, signal: AbortSignal): Promise<number | undefined> {
    try {
      const response = await this.#post(`api/recorders/${traceId}/lease`, undefined, signal)
      const { leaseSeconds } = JSON.parse(response.text) as { leaseSeconds: number }
      return leaseSeconds > 0 ? (leaseSeconds * 1000) / 3 : undefined
    } catch {
      return undefined // Sending spans reports why.
    }
  }

  async #post(
    path: string,
    body: string | ArrayBuffer | undefined,
    signal: AbortSignal,
  ): Promise<Answer> {
    signal.throwIfAborted()
    const request = new AbortController()
    const end = (): void => request.abort()
    const timer = setTimeout(end, ANSWER_MILLIS)
    signal.addEventListener('abort', end)
    let response: Response
    let text: string
    try {
      response = await fetch(`${this.url}/${path}`, {
        method: 'POST',
        headers: {
          ...this.#headers,
          ...(body !== undefined && { 'content-type': 'application/json' }),
          ...(body instanceof ArrayBuffer && { 'content-encoding': 'gzip' }),
        },
        ...(body !== undefined && { body }),
        signal: request.signal,
      })
      text = await response.text()
    } catch (error) {
      signal.throwIfAborted()
      throw new ServerUnavailable(`${reasonOf(error)}. ${CHECK_ADDRESS}`)
    } finally {
      clearTimeout(timer)
      signal.removeEventListener('abort', end)
    }
    if (response.ok || REFUSALS.has(response.status)) return { status: response.status, text }
    const advice = response.status === 401 || response.status === 403 ? CHECK_KEY : CHECK_ADDRESS
    const seconds = Number(response.headers.get('retry-after') ?? 0)
    throw new ServerUnavailable(
      `it answered ${response.status}. ${advice}`,
      Number.isFinite(seconds) ? Math.min(seconds * 1000, LONGEST_RETRY_AFTER_MILLIS) : undefined,
    )
  }

  /** Reports a problem when it begins, not at each attempt. */
  #note(problem: string): void {
    if (this.#problem === problem) return
    this.#problem = problem
    this.#report(`The server at ${this.url} cannot be used, and spans wait in memory: ${problem}`)
  }
}

/** Resolves after some time, or when `signal` is aborted. It does not keep the process running. */
export async function pause(millis: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  await new Promise<void>((resolve) => {
    const end = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', end)
      resolve()
    }
    const timer = setTimeout(end, millis)
    unref(timer)
    signal.addEventListener('abort', end)
  })
}

/** In browsers and workers, a timer is a number and has no `unref`. */
export function unref(timer: ReturnType<typeof setTimeout>): void {
  ;(timer as { unref?: () => void }).unref?.()
}

async function compressed(body: string): Promise<string | ArrayBuffer> {
  if (body.length < COMPRESSED_BYTES) return body
  const stream = new Blob([body]).stream().pipeThrough(new CompressionStream('gzip'))
  return new Response(stream).arrayBuffer()
}

function refusalOf({ text }: Answer): { count: number; message: string } {
  const answer = parsed(text) as {
    partialSuccess?: { rejectedSpans?: string | number; errorMessage?: string }
    message?: string
    detail?: string
  }
  const { rejectedSpans = 0, errorMessage } = answer.partialSuccess ?? {}
  return {
    count: Number(rejectedSpans),
    message: errorMessage ?? answer.detail ?? answer.message ?? '',
  }
}

function parsed(text: string): object {
  try {
    return Object(JSON.parse(text))
  } catch {
    throw new ServerUnavailable(`its answer is not from a Tracer server. ${CHECK_ADDRESS}`)
  }
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'the request failed'
  if (error.name === 'AbortError') return `no answer within ${ANSWER_MILLIS / 1000} s`
  const cause = error.cause as { code?: string; message?: string } | undefined
  return cause?.code ?? cause?.message ?? error.message
}
