import type {
  Attributes,
  HrTime,
  Link,
  SpanContext,
  SpanKind,
  SpanStatus,
} from '@opentelemetry/api'

interface Scope {
  readonly name: string
  readonly version?: string
}

/**
 * What is read of a span. The spans of versions 1, 2 and 3 of the SDK have this form, so that this
 * package depends on none of them.
 */
export interface SdkSpan {
  readonly name: string
  readonly kind: SpanKind
  spanContext(): SpanContext
  readonly parentSpanContext?: SpanContext
  /** Only in version 1. */
  readonly parentSpanId?: string
  readonly startTime: HrTime
  readonly endTime: HrTime
  readonly ended: boolean
  readonly status: SpanStatus
  readonly attributes: Attributes
  readonly links: (Link & { droppedAttributesCount?: number })[]
  readonly events: {
    readonly time: HrTime
    readonly name: string
    readonly attributes?: Attributes
    readonly droppedAttributesCount?: number
  }[]
  readonly resource: {
    readonly attributes: Attributes
    readonly asyncAttributesPending?: boolean
    waitForAsyncAttributes?(): Promise<void>
  }
  readonly instrumentationScope?: Scope
  /** Only in version 1. */
  readonly instrumentationLibrary?: Scope
  readonly droppedAttributesCount: number
  readonly droppedEventsCount: number
  readonly droppedLinksCount: number
}
