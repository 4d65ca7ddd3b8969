import { SpanStatusCode } from '@opentelemetry/api'
import { BasicTracerProvider, InMemorySpanExporter } from '@opentelemetry/sdk-trace-base'
import { SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
import { expect, test } from 'vitest'

import { encodeRequest, encodeSpan } from '../src/otlp.js'

test('a span has all its fields in a request', () => {
  const exporter = new InMemorySpanExporter()
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  const linked = { traceId: '1'.repeat(32), spanId: '2'.repeat(16), traceFlags: 1 }
  const span = provider.getTracer('scope', '1.2').startSpan('measure', {
    kind: 2,
    startTime: [1_700_000_000, 1],
    links: [{ context: linked, attributes: { why: 'retry' } }],
    attributes: { text: 'ä', yes: true, whole: 3, part: 0.5, huge: 1e300, list: ['a', 'b'] },
  })
  span.setAttribute('infinite', Infinity)
  span.addEvent('said', { words: 2 }, [1_700_000_001, 0])
  span.setStatus({ code: SpanStatusCode.ERROR, message: 'no cuff' })
  span.end([1_700_000_002, 0])

  const request = JSON.parse(encodeRequest(exporter.getFinishedSpans().map(encodeSpan)))

  const [{ scope, spans }] = request.resourceSpans[0].scopeSpans
  expect(scope).toMatchObject({ name: 'scope', version: '1.2' })
  expect(spans).toEqual([
    expect.objectContaining({
      name: 'measure',
      kind: 3,
      startTimeUnixNano: '1700000000000000001',
      endTimeUnixNano: '1700000002000000000',
      attributes: [
        { key: 'text', value: { stringValue: 'ä' } },
        { key: 'yes', value: { boolValue: true } },
        { key: 'whole', value: { intValue: 3 } },
        { key: 'part', value: { doubleValue: 0.5 } },
        { key: 'huge', value: { doubleValue: 1e300 } },
        {
          key: 'list',
          value: { arrayValue: { values: [{ stringValue: 'a' }, { stringValue: 'b' }] } },
        },
        { key: 'infinite', value: { doubleValue: 'Infinity' } },
      ],
      events: [
        {
          timeUnixNano: '1700000001000000000',
          name: 'said',
          attributes: [{ key: 'words', value: { intValue: 2 } }],
          droppedAttributesCount: 0,
        },
      ],
      links: [
        expect.objectContaining({
          traceId: '1'.repeat(32),
          attributes: [{ key: 'why', value: { stringValue: 'retry' } }],
        }),
      ],
      status: { code: 2, message: 'no cuff' },
    }),
  ])
})
