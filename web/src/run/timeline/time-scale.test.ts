import { expect, test } from 'vitest'
import {
  barOf,
  momentAt,
  panned,
  fractionOf,
  readWindow,
  roundStep,
  ticks,
  wholeWindow,
  windowAround,
  withinWhole,
  writeWindow,
  zoomed,
} from './time-scale'

const WHOLE = { from: 0, to: 1000 }
const SECOND = 1000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE

test('zooming keeps the moment under the pointer where it is', () => {
  const shown = zoomed(WHOLE, 0.5, 0.25)

  expect(shown).toEqual({ from: 125, to: 625 })
  expect(momentAt(0.25, shown)).toBe(250)
  expect(fractionOf(250, shown)).toBe(0.25)
})

test('a window stays within the whole, as long as it was where there is room', () => {
  expect(withinWhole({ from: -100, to: 300 }, WHOLE)).toEqual({ from: 0, to: 400 })
  expect(withinWhole({ from: 900, to: 1200 }, WHOLE)).toEqual({ from: 700, to: 1000 })
  expect(withinWhole({ from: -5, to: 5000 }, WHOLE)).toEqual(WHOLE)
  expect(withinWhole(panned({ from: 0, to: 200 }, 0.5), WHOLE)).toEqual({ from: 100, to: 300 })
})

test('zooming in ends at ten microseconds, and a run of no time has a window too', () => {
  let shown = WHOLE
  for (let count = 0; count < 100; count += 1) shown = withinWhole(zoomed(shown, 0.5), WHOLE)

  expect(shown.to - shown.from).toBeCloseTo(0.01, 9)
  expect(wholeWindow(0).to).toBeGreaterThan(0)
})

test('a record is shown with air around it', () => {
  expect(windowAround({ start: 100, end: 200 }, 0)).toEqual({ from: 90, to: 210 })
  expect(windowAround({ start: 100, end: Infinity }, 300)).toEqual({ from: 80, to: 320 })
})

test('a bar is drawn from start to end, or to now while it goes on', () => {
  expect(barOf({ start: 250, end: 500 }, WHOLE, 0)).toEqual({ left: 0.25, width: 0.25 })
  expect(barOf({ start: 250, end: Infinity }, WHOLE, 750)).toEqual({ left: 0.25, width: 0.5 })
  expect(barOf({ start: 250, end: Infinity }, WHOLE, 0)).toEqual({ left: 0.25, width: 0 })
  expect(barOf({ start: 250, end: 250 }, WHOLE, 0)).toEqual({ left: 0.25, width: 0 })
})

test('a bar ends at the edges of the window, and one outside is said to be', () => {
  const shown = { from: 400, to: 600 }

  expect(barOf({ start: 0, end: 1e12 }, shown, 0)).toEqual({ left: 0, width: 1 })
  expect(barOf({ start: 0, end: 399 }, shown, 0)).toBe('before')
  expect(barOf({ start: 601, end: 700 }, shown, 0)).toBe('after')
})

test.each([
  [0.05, 5, 0.01],
  [1000, 5, 200],
  [4 * SECOND, 5, SECOND],
  [70 * SECOND, 5, 15 * SECOND],
  [10 * MINUTE, 5, 2 * MINUTE],
  [3 * HOUR, 5, HOUR],
  [50 * HOUR, 5, 12 * HOUR],
  [90 * HOUR, 5, 24 * HOUR],
  [400 * 24 * HOUR, 5, 100 * 24 * HOUR],
])('a length of %d milliseconds in %d parts has a round step of %d', (length, parts, step) => {
  expect(roundStep(length, parts)).toBeCloseTo(step, 9)
})

test('ticks are the multiples of the step that the window shows, however little that is', () => {
  expect(ticks({ from: 150, to: 1000 }, 4).moments).toEqual([500, 1000])
  const { step, moments } = ticks({ from: 12_345.678, to: 12_345.69 }, 5)

  expect(step).toBeCloseTo(0.005, 9)
  expect(moments).toHaveLength(3)
  expect(moments[0]).toBeCloseTo(12_345.68, 9)
  for (let length = 0.01; length < 1e12; length *= 1.7) {
    const count = ticks({ from: length / 3, to: length * 1.3333 }, 6).moments.length
    expect(count).toBeGreaterThan(0)
    expect(count).toBeLessThanOrEqual(7)
  }
})

test('windows come back as exactly as they can be seen', () => {
  expect(writeWindow({ from: 1234.56789, to: 5678.9 })).toBe('1234.57-5678.9')
  expect(writeWindow({ from: 0.12344, to: 0.13344 })).toBe('0.1234-0.1334')
  expect(readWindow('1234.57-5678.9')).toEqual({ from: 1234.57, to: 5678.9 })
  expect(writeWindow(null)).toBeNull()
  for (const nonsense of [
    null,
    '',
    '5',
    '5-5',
    '9-1',
    'a-b',
    '1-Infinity',
    `1-${'9'.repeat(50)}`,
  ]) {
    expect(readWindow(nonsense)).toBeNull()
  }
})
