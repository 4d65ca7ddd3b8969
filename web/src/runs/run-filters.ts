/** Which runs a reader wants to see, kept in the address of the list. */
import type { ShownStatus } from '../api/shapes'
import {
  ALL_TIME,
  boundsOf,
  isAllTime,
  readRange,
  writeRange,
  type TimeRange,
} from '../lib/time-range'
import type { Query } from '../lib/url-query'

export interface RunFilters {
  /** Text within questions, answers, tool and agent names or errors. */
  text: string
  status: ShownStatus | null
  agent: string
  tool: string
  /** The conversation, whom it is about, and one of the tags: each as a run has it, spaces and all. */
  session: string
  subject: string
  tag: string
  range: TimeRange
  /** Traces too that have no agent, model or tool call. */
  otherTraces: boolean
}

export const NO_FILTERS: RunFilters = {
  text: '',
  status: null,
  agent: '',
  tool: '',
  session: '',
  subject: '',
  tag: '',
  range: ALL_TIME,
  otherTraces: false,
}

/** The filters that are a name, and their labels. */
export const NAMED_FILTERS = {
  agent: 'runs.agent',
  tool: 'filters.tool',
  session: 'runs.session',
  subject: 'runs.subject',
  tag: 'filters.tag',
} as const

const TYPED = /(?:^|\s)(agent|tool|session|subject|tag|status):(?:"([^"]+)"|(\S+))(?=\s)/u

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

export function readFilters(read: (name: string) => string | null): RunFilters {
  return {
    text: read('q') ?? '',
    status: STATUSES.find((status) => status === read('status')) ?? null,
    agent: read('agent') ?? '',
    tool: read('tool') ?? '',
    session: read('session') ?? '',
    subject: read('subject') ?? '',
    tag: read('tag') ?? '',
    range: readRange(read),
    otherTraces: read('otherTraces') === 'true',
  }
}

export function writeFilters(filters: RunFilters): Query {
  return {
    q: filters.text || null,
    status: filters.status,
    agent: filters.agent || null,
    tool: filters.tool || null,
    session: filters.session || null,
    subject: filters.subject || null,
    tag: filters.tag || null,
    ...writeRange(filters.range),
    otherTraces: filters.otherTraces ? 'true' : null,
  }
}

/** How many filters are set, so that less is listed than there is. */
export function narrowing(filters: RunFilters): number {
  const { text, status, agent, tool, session, subject, tag, range } = filters
  const typed = [text.trim(), agent.trim(), tool.trim(), session, subject, tag]
  return [...typed, status, !isAllTime(range)].filter(Boolean).length
}

/** The parameters to ask the API with. */
export function askFor(filters: RunFilters, now: number) {
  return {
    q: filters.text.trim() || null,
    status: filters.status,
    agent: filters.agent.trim() || null,
    tool: filters.tool.trim() || null,
    session: filters.session || null,
    subject: filters.subject || null,
    tag: filters.tag || null,
    ...boundsOf(filters.range, now),
    // Left out by default, so that a plain list has a plain address.
    ...(filters.otherTraces ? { otherTraces: true } : {}),
  }
}
