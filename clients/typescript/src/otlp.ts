import type { AttributeValue, Attributes, HrTime } from '@opentelemetry/api'

import type { SdkSpan } from './span.js'

/** A span in OTLP's JSON form, with the resource and the scope that it belongs to. */
export interface EncodedSpan {
  readonly resource: SdkSpan['resource']
  readonly scope: SdkSpan['instrumentationScope']
  readonly span: object
}

/** Returns the state that a span has now. The end of an open span is 0. */
export function encodeSpan(span: SdkSpan): EncodedSpan {
  const { traceId, spanId, traceState } = span.spanContext()
  const parentSpanId = span.parentSpanContext?.spanId ?? span.parentSpanId
  return {
    resource: span.resource,
    scope: span.instrumentationScope ?? span.instrumentationLibrary,
    span: {
      traceId,
      spanId,
      ...(parentSpanId && { parentSpanId }),
      ...(traceState && { traceState: traceState.serialize() }),
      name: span.name,
      // OTLP has a kind more, which comes first: unspecified.
      kind: span.kind + 1,
      startTimeUnixNano: nanoseconds(span.startTime),
      endTimeUnixNano: span.ended ? nanoseconds(span.endTime) : '0',
      attributes: encodeAttributes(span.attributes),
      droppedAttributesCount: span.droppedAttributesCount,
      events: span.events.map((event) => ({
        timeUnixNano: nanoseconds(event.time),
        name: event.name,
        attributes: encodeAttributes(event.attributes),
        droppedAttributesCount: event.droppedAttributesCount ?? 0,
      })),
      droppedEventsCount: span.droppedEventsCount,
      links: span.links.map((link) => ({
        traceId: link.context.traceId,
        spanId: link.context.spanId,
        attributes: encodeAttributes(link.attributes),
        droppedAttributesCount: link.droppedAttributesCount ?? 0,
      })),
      droppedLinksCount: span.droppedLinksCount,
      status: { code: span.status.code, message: span.status.message ?? '' },
    },
  }
}

/** Returns the body of a request to `/v1/traces`. */
export function encodeRequest(spans: readonly EncodedSpan[]): string {
  const resources = new Map<unknown, Map<unknown, object[]>>()
  const attributesOf = new Map<unknown, object[]>()
  for (const { resource, scope, span } of spans) {
    attributesOf.set(resource, encodeAttributes(resource.attributes))
    const scopes = entry(resources, resource, () => new Map<unknown, object[]>())
    entry(scopes, scope, () => []).push(span)
  }
  return JSON.stringify({
    resourceSpans: [...resources].map(([resource, scopes]) => ({
      resource: { attributes: attributesOf.get(resource) },
      scopeSpans: [...scopes].map(([scope, spansOfScope]) => ({ scope, spans: spansOfScope })),
    })),
  })
}

function entry<Key, Value>(map: Map<Key, Value>, key: Key, make: () => Value): Value {
  let value = map.get(key)
  if (value === undefined) {
    value = make()
    map.set(key, value)
  }
  return value
}

function nanoseconds([seconds, nanos]: HrTime): string {
  return String(BigInt(seconds) * 1_000_000_000n + BigInt(nanos))
}

function encodeAttributes(attributes: Attributes | undefined): object[] {
  return Object.entries(attributes ?? {}).flatMap(([key, value]) =>
    value === undefined ? [] : [{ key, value: encodeValue(value) }],
  )
}

function encodeValue(value: AttributeValue | null | undefined): object {
  if (typeof value === 'string') return { stringValue: value }
  if (typeof value === 'boolean') return { boolValue: value }
  if (typeof value === 'number') {
    if (Number.isSafeInteger(value)) return { intValue: value }
    // JSON has no infinite numbers: OTLP has them as text.
    return { doubleValue: Number.isFinite(value) ? value : String(value) }
  }
  if (Array.isArray(value)) return { arrayValue: { values: value.map(encodeValue) } }
  return {}
}
