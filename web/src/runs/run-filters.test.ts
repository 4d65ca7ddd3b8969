import { expect, test } from 'vitest'
import { ALL_TIME } from '../lib/time-range'
import {
  askFor,
  narrowing,
  NO_FILTERS,
  readFilters,
  writeFilters,
  type RunFilters,
  typedFilter,
} from './run-filters'

const FULL: RunFilters = {
  text: ' cuff & <b> ',
  status: 'failed',
  agent: 'nurse',
  tool: 'check',
  session: ' ward-3',
  subject: 'p-7 ',
  tag: 'night',
  service: 'ward',
  serviceVersion: '1.4',
  environment: 'production',
  model: 'gpt-5',
  origin: 'http_get',
  errorType: 'TimeoutError',
  metadataKey: 'tenant',
  range: { ...ALL_TIME, last: '24h' },
  otherTraces: true,
}

function through(filters: RunFilters): RunFilters {
  const query = writeFilters(filters)
  return readFilters((name) => query[name] ?? null)
}

test('filters come back from an address as they were put there', () => {
  for (const filters of [NO_FILTERS, FULL]) expect(through(filters)).toEqual(filters)
})

test('without filters the address says nothing, and nothing is asked for', () => {
  expect(Object.values(writeFilters(NO_FILTERS)).every((value) => value === null)).toBe(true)
  expect(Object.values(askFor(NO_FILTERS, 0)).every((value) => value === null)).toBe(true)
  expect(readFilters(() => 'nonsense').status).toBeNull()
})

test('the API is asked for what the filters say, without the space around names', () => {
  expect(askFor(FULL, Date.parse('2026-01-02T00:00:00Z'))).toEqual({
    q: 'cuff & <b>',
    status: 'failed',
    agent: 'nurse',
    tool: 'check',
    session: ' ward-3',
    subject: 'p-7 ',
    tag: 'night',
    service: 'ward',
    serviceVersion: '1.4',
    environment: 'production',
    model: 'gpt-5',
    origin: 'http_get',
    errorType: 'TimeoutError',
    metadataKey: 'tenant',
    from: '2026-01-01T00:00:00.000Z',
    to: null,
    otherTraces: true,
  })
})

test('what lists more than usual is not counted among what lists less', () => {
  expect(narrowing(FULL)).toBe(15)
  expect(narrowing({ ...NO_FILTERS, otherTraces: true, text: '  ' })).toBe(0)
})

test('a filter that is typed and finished is taken out of the text', () => {
  expect(typedFilter('tide agent:billing ')).toEqual({ agent: 'billing', text: 'tide ' })
  expect(typedFilter('tag:"two words" tide')).toEqual({ tag: 'two words', text: 'tide' })
  expect(typedFilter('status:failed ')).toEqual({ status: 'failed', text: '' })
  expect(typedFilter('status:odd ')).toBeNull()
  expect(typedFilter('agent:bill')).toBeNull()
  expect(typedFilter('https://a ')).toBeNull()
})
