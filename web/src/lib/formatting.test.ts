import { expect, test } from 'vitest'
import {
  elapsed,
  formatChange,
  formatBytes,
  formatColumnCost,
  formatCost,
  formatKnownCost,
  formatDuration,
  formatFactor,
  formatExactMoment,
  formatMoment,
  formatOffset,
  formatShare,
} from './formatting'

test.each([
  [0, '0ms'],
  [340.4, '340ms'],
  [999.4, '999ms'],
  [999.6, '1s'],
  [1234, '1.2s'],
  [9_960, '10s'],
  [59_499, '59s'],
  [59_600, '1m 0s'],
  [125_000, '2m 5s'],
  [3_599_600, '1h 0m'],
  [11_520_000, '3h 12m'],
  [86_399_600, '1d 0h'],
  [28_063_380_000, '324d 19h'],
  [-5, '0ms'],
])('%d milliseconds are %s', (milliseconds, text) => {
  expect(formatDuration(milliseconds, 'en')).toBe(text)
})

test('durations speak Chinese', () => {
  expect(formatDuration(1234, 'zh-CN')).toBe('1.2秒')
  expect(formatDuration(614, 'zh-CN')).toBe('614毫秒')
})

test('an open record has a duration from its start, never negative', () => {
  const open = { startedAt: '2026-01-01T00:00:10Z', finishedAt: null, durationMs: null }
  const at = (text: string) => Date.parse(text)

  expect(elapsed(open, true, at('2026-01-01T00:00:12Z'))).toBe(2000)
  expect(elapsed(open, true, at('2026-01-01T00:00:00Z'))).toBe(0)
  expect(elapsed(open, false, at('2026-01-01T00:00:12Z'))).toBeNull()
  expect(elapsed({ ...open, startedAt: null }, true, 0)).toBeNull()
})

test('small costs keep the digits that tell something', () => {
  expect(formatCost(0.00042, 'en')).toBe('$0.00042')
  expect(formatCost(0.0123456, 'en')).toBe('$0.0123')
  expect(formatCost(12.3456, 'en')).toBe('$12.35')
  expect(formatCost(0, 'en')).toBe('$0.00')
})

test('an unknown cost, a cost of zero and an incomplete cost differ', () => {
  const shown = (costUsd: number | null, unpricedCalls: number) =>
    formatKnownCost({ costUsd, unpricedCalls }, 'en', 'unknown')
  expect(shown(0, 0)).toBe('$0.00')
  expect(shown(null, 2)).toBe('unknown')
  expect(shown(0.12, 0)).toBe('$0.1200')
  expect(shown(0.12, 1)).toBe('≥ $0.1200')
})

test('sizes are in the unit that fits', () => {
  expect(formatBytes(18, 'en')).toBe('18 bytes')
  expect(formatBytes(2_048, 'en')).toBe('2kB')
  expect(formatBytes(5_000_000, 'en')).toBe('5MB')
})

test('a moment of another day names the day', () => {
  const now = Date.parse('2026-11-22T12:00:00')

  expect(formatMoment('2026-11-22T08:00:00', 'en', now)).toMatch(/^8:00:00.AM$/)
  expect(formatMoment('2026-11-20T08:00:00', 'en', now)).toMatch(/^Nov 20, 2026, 8:00:00.AM$/)
  expect(formatMoment('2026-11-22T08:00:00', 'en', null)).toMatch(/^Nov 22, 2026, 8:00:00.AM$/)
})

test.each([
  [0, 100, '0ms'],
  [250, 50, '250ms'],
  [0.35, 0.05, '0.35ms'],
  [1250, 50, '1.25s'],
  [1000, 500, '1s'],
  [12_345.68, 0.01, '12.34568s'],
  [90_000, 30_000, '1m 30s'],
  [120_000, 60_000, '2m'],
  [59_999.9999, 1000, '1m'],
  [5_400_000, 1_800_000, '1h 30m'],
  [90_000_000, 3_600_000, '1d 1h'],
  [-1500, 500, '−1.5s'],
])('%d milliseconds after the start, in steps of %d, are %s', (offset, step, text) => {
  expect(formatOffset(offset, step, 'en')).toBe(text)
})

test.each([
  [0, '0%'],
  [0.00001, '0.1%'],
  [0.034, '3.4%'],
  [0.5, '50%'],
  [0.99999, '99.9%'],
  [1, '100%'],
])('the share %d is %s: some is never none, nor all', (share, text) => {
  expect(formatShare(share, 'en')).toBe(text)
})

test.each([
  [1.25, '×1.3'],
  [9.96, '×10'],
  [1234.5, '×1,235'],
])('%d times as long is %s', (factor, text) => {
  expect(formatFactor(factor, 'en')).toBe(text)
})

test.each([
  [1, 2.5, '×2.5'],
  [100, 42, '−58%'],
  [100, 104, '+4%'],
  [100, 100.1, '↑'],
  [0, 3, '↑'],
  [3, 3, '='],
  [null, 3, '–'],
])('from %d to %d is a change of %s', (before, after, text) => {
  expect(formatChange(before, after, 'en')).toBe(text)
})

test('an exact moment ends with its zone', () => {
  const moment = '2026-11-22T08:00:00.250'
  expect(formatExactMoment(moment, 'en')).toMatch(/^Nov 22, 2026, 08:00:00.250.AM \S+$/)
  expect(formatExactMoment(moment, 'zh-CN')).toMatch(/^2026年11月22日 08:00:00.250 \S+$/)
})

test('costs of a column have the same digits, by the cost of the whole', () => {
  const shown = (costUsd: number | null, whole: number, unpricedCalls = 0) =>
    formatColumnCost({ costUsd, unpricedCalls }, whole, 'en', '–')

  expect([0.1644, 0.0001, 0.05].map((cost) => shown(cost, 0.1644))).toEqual([
    '$0.164',
    '<$0.001',
    '$0.050',
  ])
  expect([0.000526, 0.000055, 0].map((cost) => shown(cost, 0.000526))).toEqual([
    '$0.000526',
    '$0.000055',
    '$0.000000',
  ])
  expect(shown(1.5, 12)).toBe('$1.50')
  expect(shown(0.1, 0.2, 1)).toBe('≥ $0.100')
  expect(shown(null, 0)).toBe('–')
})
