/** Which runs the overview is about, and the links to them. */
import type { RouteLocationRaw } from 'vue-router'
import { boundsOf, writeRange, type TimeRange } from '../lib/time-range'
import { givenIn, type Query } from '../lib/url-query'

/** The filters of the overview, which the list of runs has by the same names. */
export const FILTERS = ['service', 'environment', 'agent', 'model'] as const

export type Filter = (typeof FILTERS)[number]

export type Filters = Record<Filter, string | null>

/** The initial range. */
export const WEEK: TimeRange = { last: '7d', from: null, to: null }

/** The longest range for which spend by user is answered, in milliseconds. */
const LONGEST_BY_USER = 30 * 86_400_000

/** The parameters to ask the API with. */
export function askFor(range: TimeRange, filters: Filters, now: number) {
  return { ...boundsOf(range, now), ...filters }
}

/** Whether spend by user is answered for a range. */
export function hasUsers(range: TimeRange, now: number): boolean {
  const { from, to } = boundsOf(range, now)
  const end = to === null ? now : Date.parse(to)
  return from !== null && end - Date.parse(from) <= LONGEST_BY_USER
}

/** The list of the runs that a figure is about. */
export function runsOf(range: TimeRange, filters: Filters, more: Query = {}): RouteLocationRaw {
  return { name: 'runs', query: givenIn({ ...writeRange(range), ...filters, ...more }) }
}
