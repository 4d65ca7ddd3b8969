/** A span of time that a page is about: up to now, or between two moments; in the address. */
import type { Query } from './url-query'

export const LENGTHS = {
  '1h': 3_600_000,
  '24h': 86_400_000,
  '7d': 604_800_000,
  '30d': 2_592_000_000,
}

export type Length = keyof typeof LENGTHS

export interface TimeRange {
  /** The length of a range that ends now; null if `from` and `to` state the range. */
  last: Length | null
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
  if (last !== null && Object.hasOwn(LENGTHS, last)) {
    return { ...ALL_TIME, last: last as Length }
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
  return { from: new Date(now - LENGTHS[range.last]).toISOString(), to: null }
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
