import { subscribe, unsubscribe } from 'node:diagnostics_channel'

import { ROOT_CONTEXT, context, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { isTracingSuppressed } from '@opentelemetry/core'
import { AlwaysOffSampler, BasicTracerProvider } from '@opentelemetry/sdk-trace-base'
import { BasicTracerProvider as BasicTracerProvider1 } from 'sdk-trace-base-1'
import { afterEach, beforeEach, expect, test } from 'vitest'

import { TracerSpanProcessor } from '../src/index.js'
import type { TracerSpanProcessorOptions } from '../src/index.js'
import { Receiver } from './receiver.js'

let receiver: Receiver
let messages: string[]
let processors: TracerSpanProcessor[]

beforeEach(async () => {
  receiver = await Receiver.listening()
  messages = []
  processors = []
})

afterEach(async () => {
  await receiver.close()
  await Promise.all(processors.map((each) => each.shutdown()))
})

function processing(options: TracerSpanProcessorOptions = {}) {
  const processor = new TracerSpanProcessor({
    url: receiver.url,
    // Longer than the tests: spans are sent by `forceFlush` or when a batch is full.
    delayMillis: 60_000,
    report: (message) => messages.push(message),
    ...options,
  })
  processors.push(processor)
  const provider = new BasicTracerProvider({ spanProcessors: [processor] })
  return { processor, tracer: provider.getTracer('test') }
}

test('a span is sent when it starts and when it ends', async () => {
  const { processor, tracer } = processing()

  const span = tracer.startSpan('measure', { attributes: { where: 'left' } })
  await processor.forceFlush()
  span.setAttribute('result', 121)
  span.end()
  await processor.forceFlush()

  const [started, ended] = receiver.spans
  expect(started).toMatchObject({ name: 'measure', endTimeUnixNano: '0' })
  expect(started?.attributes).toEqual([{ key: 'where', value: { stringValue: 'left' } }])
  expect(ended?.spanId).toBe(started?.spanId)
  expect(ended?.startTimeUnixNano).toBe(started?.startTimeUnixNano)
  expect(BigInt(ended!.endTimeUnixNano) >= BigInt(ended!.startTimeUnixNano)).toBe(true)
  expect(ended?.attributes).toContainEqual({ key: 'result', value: { intValue: 121 } })
})

test('a span that ends soon is sent once', async () => {
  const { processor, tracer } = processing()

  for (let count = 0; count < 600; count += 1) tracer.startSpan('short').end()
  await processor.forceFlush()

  expect(receiver.spans).toHaveLength(600)
  expect(receiver.spans.every((span) => span.endTimeUnixNano !== '0')).toBe(true)
})

test('a full batch does not wait for the delay', async () => {
  const { tracer } = processing()
  const arrived = receiver.nextRequest()

  for (let count = 0; count < 256; count += 1) tracer.startSpan('open')

  await arrived
})

test('spans that the sampler drops are not sent', async () => {
  const processor = new TracerSpanProcessor({ url: receiver.url })
  processors.push(processor)
  const provider = new BasicTracerProvider({
    sampler: new AlwaysOffSampler(),
    spanProcessors: [processor],
  })

  provider.getTracer('test').startSpan('unseen').end()
  await processor.forceFlush()

  expect(receiver.requests).toHaveLength(0)
})

test('the key is sent', async () => {
  const { processor, tracer } = processing({ apiKey: 'k-1' })

  tracer.startSpan('measure').end()
  await processor.forceFlush()

  expect(receiver.requests[0]?.headers.authorization).toBe('Bearer k-1')
})

test('instrumentations do not trace the requests', async () => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  const suppressed: boolean[] = []
  // Instrumentations of `fetch` subscribe to this channel, too.
  const note = (): void => void suppressed.push(isTracingSuppressed(context.active()))
  subscribe('undici:request:create', note)
  try {
    const { processor, tracer } = processing()
    tracer.startSpan('measure').end()
    await processor.forceFlush()
  } finally {
    unsubscribe('undici:request:create', note)
    context.disable()
  }

  expect(suppressed).toEqual([true])
})

test('an outage is reported once and loses nothing', async () => {
  const { processor, tracer } = processing()
  let failures = 3
  receiver.answer = () => ({ status: failures-- > 0 ? 503 : 200 })

  tracer.startSpan('kept').end()
  await processor.forceFlush()

  expect(receiver.names).toEqual(['kept'])
  expect(messages).toEqual([
    expect.stringContaining('cannot be used, and spans wait in memory: it answered 503'),
    expect.stringContaining('stores spans again'),
  ])
  expect(processor.dropped).toEqual({ starts: 0, spans: 0 })
})

test('a full queue drops starts first, then the oldest spans, and reports their number', async () => {
  const { processor, tracer } = processing({ maxWaiting: 3 })
  let goOn: (answer: { status: number }) => void = () => undefined
  const waiting = new Promise<{ status: number }>((resolve) => (goOn = resolve))
  const arrived = receiver.nextRequest()
  receiver.answer = () => waiting
  tracer.startSpan('first').end()
  const flushed = processor.forceFlush()
  await arrived

  const open = [tracer.startSpan('a'), tracer.startSpan('b')]
  for (const name of ['c', 'd', 'e', 'f']) tracer.startSpan(name).end()
  receiver.answer = () => ({ status: 200 })
  goOn({ status: 200 })
  await flushed
  await processor.forceFlush()

  expect(receiver.names).toEqual(['first', 'd', 'e', 'f'])
  expect(open).toHaveLength(2)
  expect(processor.dropped).toEqual({ starts: 3, spans: 1 })
  expect(messages).toContain('Dropped 3 starts of spans and 1 ended spans.')
})

test('a request that is too large is divided', async () => {
  const { processor, tracer } = processing()
  receiver.answer = (spans) => ({ status: spans.length > 3 ? 413 : 200 })

  for (let count = 0; count < 10; count += 1) tracer.startSpan(`s${count}`).end()
  await processor.forceFlush()

  expect(receiver.names).toEqual([...Array(10).keys()].map((count) => `s${count}`))
})

test('refused spans are counted and reported', async () => {
  const { processor, tracer } = processing()
  receiver.answer = () => ({
    status: 200,
    body: { partialSuccess: { rejectedSpans: '1', errorMessage: 'invalid_span: no id' } },
  })

  tracer.startSpan('bad').end()
  await processor.forceFlush()

  expect(processor.dropped).toEqual({ starts: 0, spans: 1 })
  expect(messages).toEqual(['Spans were refused: invalid_span: no id'])
})

test('spans after the shutdown are not queued', async () => {
  const { processor, tracer } = processing()
  tracer.startSpan('before').end()
  await processor.shutdown()

  tracer.startSpan('after').end()
  await processor.forceFlush()

  expect(receiver.names).toEqual(['before'])
})

test('version 1 of the SDK is read too', async () => {
  const { processor } = processing()
  const provider = new BasicTracerProvider1({ spanProcessors: [processor] })
  const tracer = provider.getTracer('test')

  const parent = tracer.startSpan('above')
  tracer.startSpan('below', {}, trace.setSpan(ROOT_CONTEXT, parent)).end()
  parent.end()
  await processor.forceFlush()

  const [below, above] = receiver.spans
  expect(below?.parentSpanId).toBe(above?.spanId)
})
