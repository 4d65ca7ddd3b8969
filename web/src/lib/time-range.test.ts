import { expect, test } from 'vitest'
import {
  ALL_TIME,
  boundsOf,
  fromField,
  isBackwards,
  readRange,
  RECENT,
  toField,
  writeRange,
  type TimeRange,
} from './time-range'

const NOW = Date.parse('2026-11-22T12:00:00Z')

function through(range: TimeRange): TimeRange {
  const query = writeRange(range)
  return readRange((name) => query[name] ?? null)
}

test('a time range survives the round trip through the address', () => {
  const between = { last: null, from: '2026-11-01T08:30:00.000Z', to: '2026-11-02T00:00:00.000Z' }

  for (const range of [ALL_TIME, { ...ALL_TIME, last: '7d' as const }, between]) {
    expect(through(range)).toEqual(range)
  }
})

test('where an address without a range means the last month, all time can be said', () => {
  const read = (query: Record<string, string | null>) =>
    readRange((name) => query[name] ?? null, RECENT)

  expect(read({})).toEqual(RECENT)
  expect(writeRange(RECENT, RECENT)).toEqual(ALL_TIME)
  for (const range of [ALL_TIME, RECENT, { ...ALL_TIME, last: '7d' as const }]) {
    expect(read(writeRange(range, RECENT) as Record<string, string | null>)).toEqual(range)
  }
})

test.each(['', 'forever', 'toString', '2026-99-99', '0001-01-01', '9999-01-01T00:00:00Z', '<b>'])(
  'nonsense such as %s bounds nothing',
  (nonsense) => {
    expect(readRange(() => nonsense)).toEqual(ALL_TIME)
  },
)

test('the last hours are counted from now, and stay open to what comes', () => {
  expect(boundsOf({ ...ALL_TIME, last: '1h' }, NOW)).toEqual({
    from: '2026-11-22T11:00:00.000Z',
    to: null,
  })
  expect(boundsOf(ALL_TIME, NOW)).toEqual({ from: null, to: null })
})

test('days and weeks begin at midnight of the reader', () => {
  const sunday = new Date(2026, 10, 29, 9, 5).getTime()
  const fromOf = (last: 'today' | 'monday', now: number) =>
    boundsOf({ ...ALL_TIME, last }, now).from

  expect(fromOf('today', sunday)).toBe(new Date(2026, 10, 29).toISOString())
  expect(fromOf('monday', sunday)).toBe(new Date(2026, 10, 23).toISOString())
  const monday = new Date(2026, 10, 23, 0, 0, 1).getTime()
  expect(fromOf('monday', monday)).toBe(new Date(2026, 10, 23).toISOString())
})

test('a reversed time range makes no invalid request', () => {
  const [early, late] = ['2026-11-01T08:30:00.000Z', '2026-11-02T00:00:00.000Z']

  expect(isBackwards({ last: null, from: late, to: early })).toBe(true)
  expect(boundsOf({ last: null, from: late, to: early }, NOW)).toEqual({ from: late, to: late })
  for (const [from, to] of [
    [early, late],
    [late, late],
    [late, null],
    [null, early],
  ] as const) {
    expect(isBackwards({ last: null, from, to })).toBe(false)
  }
})

test('a field shows a moment in the zone of its reader and gives it back', () => {
  const moment = new Date(2026, 10, 22, 9, 5).toISOString()

  expect(toField(moment)).toBe('2026-11-22T09:05')
  expect(fromField(toField(moment))).toBe(moment)
  expect(toField(null)).toBe('')
  expect(fromField('')).toBeNull()
})
