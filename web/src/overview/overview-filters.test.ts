import { expect, test } from 'vitest'
import { ALL_TIME } from '../lib/time-range'
import { hasUsers, runsOf, WEEK } from './overview-filters'

const NONE = { service: null, environment: null, agent: null, model: null }
const NOW = Date.parse('2026-11-29T12:00:00Z')

test('a figure leads to its runs with the range and the filters of the page', () => {
  const to = runsOf(WEEK, { ...NONE, service: 'billing' }, { status: 'failed' })

  expect(to).toEqual({
    name: 'runs',
    query: { last: '7d', service: 'billing', status: 'failed' },
  })
})

test('spend by user needs a range of at most thirty days', () => {
  const between = (from: string) => ({ last: null, from, to: '2026-11-29T00:00:00.000Z' })

  expect(hasUsers(WEEK, NOW)).toBe(true)
  expect(hasUsers({ ...ALL_TIME, last: '30d' }, NOW)).toBe(true)
  expect(hasUsers(between('2026-11-01T00:00:00.000Z'), NOW)).toBe(true)
  expect(hasUsers(between('2026-10-01T00:00:00.000Z'), NOW)).toBe(false)
  expect(hasUsers(ALL_TIME, NOW)).toBe(false)
})
