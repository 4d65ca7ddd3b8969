/** Which runs a reader wants to see, kept in the address of the list. */
import type { ShownStatus } from '../api/shapes'
import {
  ALL_TIME,
  boundsOf,
  isAllTime,
  RANGE_PARAMETERS,
  readRange,
  writeRange,
  type TimeRange,
} from '../lib/time-range'
import type { Query } from '../lib/url-query'

/** The filters by an exact value, and their labels. */
export const NAMED_FILTERS = {
  agent: 'runs.agent',
  tool: 'filters.tool',
  session: 'runs.session',
  subject: 'runs.subject',
  tag: 'filters.tag',
  service: 'runs.service',
  serviceVersion: 'runs.serviceVersion',
  environment: 'runs.environment',
  model: 'filters.model',
  origin: 'filters.origin',
  errorType: 'filters.errorType',
  metadataKey: 'filters.metadataKey',
} as const

type NamedFilter = keyof typeof NAMED_FILTERS

const NAMES = Object.keys(NAMED_FILTERS) as NamedFilter[]

/** Names in which spaces at the ends are typing errors; in the others they count. */
const TRIMMED: readonly NamedFilter[] = ['agent', 'tool']

export interface RunFilters extends Record<NamedFilter, string> {
  /** Text within questions, answers, tool and agent names or errors. */
  text: string
  status: ShownStatus | null
  range: TimeRange
  /** Traces too that have no agent, model or tool call. */
  otherTraces: boolean
}

export const NO_FILTERS: RunFilters = {
  text: '',
  status: null,
  ...named(() => ''),
  range: ALL_TIME,
  otherTraces: false,
}

const TYPED = new RegExp(
  String.raw`(?:^|\s)(${[...NAMES, 'status'].join('|')}):(?:"([^"]+)"|(\S+))(?=\s)`,
  'u',
)

function named<Value>(valueOf: (name: NamedFilter) => Value): Record<NamedFilter, Value> {
  return Object.fromEntries(NAMES.map((name) => [name, valueOf(name)])) as Record<
    NamedFilter,
    Value
  >
}

/**
 * Takes a finished filter such as `agent:billing` out of a typed text.
 *
 * @returns The filter with the remaining text, or null.
 */
export function typedFilter(text: string): Partial<RunFilters> | null {
  const found = TYPED.exec(text)
  if (!found) return null
  const [whole, name, quoted, plain] = found
  const value = quoted ?? plain!
  const left = text.replace(whole, '').trimStart()
  if (name !== 'status') return { [name!]: value, text: left }
  const status = STATUSES.find((each) => each === value)
  return status ? { status, text: left } : null
}

export const STATUSES = [
  'running',
  'succeeded',
  'failed',
  'cancelled',
  'abandoned',
  'pending',
  'unknown',
] as const satisfies readonly ShownStatus[]

/** The parameters of the address that state the filters. */
export const FILTER_PARAMETERS = ['q', 'status', ...NAMES, ...RANGE_PARAMETERS, 'otherTraces']

export function readFilters(read: (name: string) => string | null): RunFilters {
  return {
    text: read('q') ?? '',
    status: STATUSES.find((status) => status === read('status')) ?? null,
    ...named((name) => read(name) ?? ''),
    range: readRange(read),
    otherTraces: read('otherTraces') === 'true',
  }
}

export function writeFilters(filters: RunFilters): Query {
  return {
    q: filters.text || null,
    status: filters.status,
    ...named((name) => filters[name] || null),
    ...writeRange(filters.range),
    otherTraces: filters.otherTraces ? 'true' : null,
  }
}

/** How many filters are set, so that less is listed than there is. */
export function narrowing(filters: RunFilters): number {
  const { text, status, range } = filters
  const values = NAMES.map((name) => askedName(filters, name))
  return [text.trim(), ...values, status, !isAllTime(range)].filter(Boolean).length
}

function askedName(filters: RunFilters, name: NamedFilter): string | null {
  return (TRIMMED.includes(name) ? filters[name].trim() : filters[name]) || null
}

/** The parameters to ask the API with. */
export function askFor(filters: RunFilters, now: number) {
  return {
    q: filters.text.trim() || null,
    status: filters.status,
    ...named((name) => askedName(filters, name)),
    ...boundsOf(filters.range, now),
    // Left out by default, so that a plain list has a plain address.
    ...(filters.otherTraces ? { otherTraces: true } : {}),
  }
}
