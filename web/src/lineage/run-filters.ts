/** Which runs a reader wants to see, kept in the address of the list. */
import type { ShownStatus } from '../api/shapes'
import type { Query } from './page-link'
import { ALL_TIME, boundsOf, isAllTime, readRange, writeRange, type TimeRange } from './time-range'

export interface RunFilters {
  /** Text within titles, tool and agent names or errors. */
  text: string
  status: ShownStatus | null
  agent: string
  tool: string
  range: TimeRange
  /** Traces too that have no agent, model or tool call. */
  otherTraces: boolean
}

export const NO_FILTERS: RunFilters = {
  text: '',
  status: null,
  agent: '',
  tool: '',
  range: ALL_TIME,
  otherTraces: false,
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
    ...writeRange(filters.range),
    otherTraces: filters.otherTraces ? 'true' : null,
  }
}

/** How many filters are set, so that less is listed than there is. */
export function narrowing(filters: RunFilters): number {
  const { text, status, agent, tool, range } = filters
  return [text.trim(), status, agent.trim(), tool.trim(), !isAllTime(range)].filter(Boolean).length
}

/** The parameters to ask the API with. */
export function askFor(filters: RunFilters, now: number) {
  return {
    q: filters.text.trim() || null,
    status: filters.status,
    agent: filters.agent.trim() || null,
    tool: filters.tool.trim() || null,
    ...boundsOf(filters.range, now),
    // Left out where it is the rule, so that a plain list has a plain address.
    ...(filters.otherTraces ? { otherTraces: true } : {}),
  }
}
