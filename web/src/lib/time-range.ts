/** A span of time that a page is about: up to now, or between two moments; in the address. */
import type { Query } from './url-query'

/** The start of each range that ends now, in milliseconds; days and weeks begin in the reader's zone. */
const STARTS = {
  '1h': (now: number) => now - 3_600_000,
  today: (now: number) => dayStart(now, 0),
  '24h': (now: number) => now - 86_400_000,
  // Sunday is the last day of its week.
  monday: (now: number) => dayStart(now, (new Date(now).getDay() + 6) % 7),
  '7d': (now: number) => now - 604_800_000,
  '30d': (now: number) => now - 2_592_000_000,
}

export type Last = keyof typeof STARTS

export const LASTS = Object.keys(STARTS) as Last[]

/** The start of the day that is some days before now. By the calendar: not all days have 24 hours. */
function dayStart(now: number, daysBefore: number): number {
  const at = new Date(now)
  return new Date(at.getFullYear(), at.getMonth(), at.getDate() - daysBefore).getTime()
}

export interface TimeRange {
  /** A range that ends now; null if `from` and `to` state the range. */
  last: Last | null
  /** Moments as RFC 3339; null is without bound. */
  from: string | null
  to: string | null
}

export const ALL_TIME: TimeRange = { last: null, from: null, to: null }
/** The initial range of statistics: reading all time of a large table takes long. */
export const RECENT: TimeRange = { ...ALL_TIME, last: '30d' }

/** All time in an address, if an empty address means something else. */
const ALL = 'all'

/** The parameters of an address that state a range. */
export const RANGE_PARAMETERS = ['last', 'from', 'to']

/** @param standard What an address without a range means. */
export function readRange(
  read: (name: string) => string | null,
  standard: TimeRange = ALL_TIME,
): TimeRange {
  const last = read('last')
  if (last === ALL) return ALL_TIME
  if (last !== null && Object.hasOwn(STARTS, last)) {
    return { ...ALL_TIME, last: last as Last }
  }
  const range = { last: null, from: moment(read('from')), to: moment(read('to')) }
  return isAllTime(range) ? standard : range
}

export function writeRange(range: TimeRange, standard: TimeRange = ALL_TIME): Query {
  if (isAllTime(range) && !isAllTime(standard)) return { ...ALL_TIME, last: ALL }
  const isStandard = range.last !== null && range.last === standard.last
  return isStandard ? { ...ALL_TIME } : { ...range }
}

export function isAllTime(range: TimeRange): boolean {
  return Object.values(range).every((bound) => bound === null)
}

/** Whether it ends before it begins. */
export function isBackwards({ from, to }: TimeRange): boolean {
  return from !== null && to !== null && from > to
}

/** The bounds to ask the API for, which refuses such as are backwards: nothing is in these either. */
export function boundsOf(
  range: TimeRange,
  now: number,
): { from: string | null; to: string | null } {
  if (isBackwards(range)) return { from: range.from, to: range.from }
  if (range.last === null) return { from: range.from, to: range.to }
  return { from: new Date(STARTS[range.last](now)).toISOString(), to: null }
}

/** A moment as a field for day and time takes it, in the reader's zone; empty for none. */
export function toField(text: string | null): string {
  if (text === null) return ''
  const at = new Date(text)
  const two = (number: number) => String(number).padStart(2, '0')
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`
  return `${day}T${two(at.getHours())}:${two(at.getMinutes())}`
}

/** The content of a field for day and time, as a moment; null if it is none. */
export function fromField(text: string): string | null {
  return moment(text)
}

/** The years that the API takes. */
const FIRST = Date.UTC(1900, 0, 1)
const LAST = Date.UTC(9000, 0, 1)

function moment(text: string | null): string | null {
  const at = text ? Date.parse(text) : NaN
  return at >= FIRST && at < LAST ? new Date(at).toISOString() : null
}
