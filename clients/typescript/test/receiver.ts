import { createServer } from 'node:http'
import type { IncomingMessage, Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gunzipSync } from 'node:zlib'

export interface ReceivedSpan {
  traceId: string
  spanId: string
  parentSpanId?: string
  name: string
  startTimeUnixNano: string
  endTimeUnixNano: string
  attributes: { key: string; value: unknown }[]
}

interface Answer {
  status: number
  body?: object
}

interface Request {
  resourceSpans: { scopeSpans: { spans: ReceivedSpan[] }[] }[]
}

/** The HTTP interface of a server that receives spans and answers as it is told. */
export class Receiver {
  readonly requests: IncomingMessage[] = []
  readonly spans: ReceivedSpan[] = []
  /** Returns the answer to a request with some spans. */
  answer: (spans: ReceivedSpan[]) => Answer | Promise<Answer> = () => ({
    status: 200,
  })
  #waiting: (() => void)[] = []

  private constructor(readonly server: Server) {}

  static async listening(): Promise<Receiver> {
    const server = createServer()
    const receiver = new Receiver(server)
    server.on('request', (request, response) => {
      const parts: Buffer[] = []
      request.on('data', (part: Buffer) => parts.push(part))
      request.on('end', async () => {
        // Two seconds after an open span has been stored, its run is renewed: not in a quick test.
        if (request.url?.endsWith('/lease')) return void response.end('{"leaseSeconds":60}')
        receiver.requests.push(request)
        const isCompressed = request.headers['content-encoding'] === 'gzip'
        const body = Buffer.concat(parts)
        const spans = spansIn(JSON.parse(String(isCompressed ? gunzipSync(body) : body)) as Request)
        for (const notify of receiver.#waiting.splice(0)) notify()
        const { status, body: answer = {} } = await receiver.answer(spans)
        if (status === 200) receiver.spans.push(...spans)
        response.writeHead(status, { 'content-type': 'application/json' })
        response.end(JSON.stringify(answer))
      })
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    return receiver
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`
  }

  get names(): string[] {
    return this.spans.map((span) => span.name)
  }

  /** Resolves when the next request has arrived. */
  nextRequest(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  async close(): Promise<void> {
    this.server.closeAllConnections()
    await new Promise((resolve) => this.server.close(resolve))
  }
}

function spansIn(request: Request): ReceivedSpan[] {
  return request.resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans))
}
