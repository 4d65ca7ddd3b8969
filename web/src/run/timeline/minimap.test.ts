import { expect, test } from 'vitest'
import { momentIn, fractionAt, sectionsOf } from './minimap'

test('a run without long idle times is one section', () => {
  const busy = [
    { start: 0, end: 400 },
    { start: 450, end: 1_000 },
  ]

  expect(sectionsOf(busy, 1_000)).toEqual([{ start: 0, end: 1_000, from: 0, to: 1, isIdle: false }])
})

test('a long idle time is folded, and moments keep their order', () => {
  const sections = sectionsOf(
    [
      { start: 0, end: 1_000 },
      { start: 241_000, end: 242_000 },
    ],
    242_000,
  )

  expect(sections.map(({ isIdle }) => isIdle)).toEqual([false, true, false])
  expect(fractionAt(sections, 1_000)).toBeCloseTo(0.485)
  expect(fractionAt(sections, 241_000)).toBeCloseTo(0.515)
  for (const moment of [0, 500, 1_000, 120_000, 241_500, 242_000]) {
    expect(momentIn(sections, fractionAt(sections, moment))).toBeCloseTo(moment, 3)
  }
})

test('a strip of no time has no sections and no fractions', () => {
  expect(sectionsOf([], 0)).toEqual([])
  expect(fractionAt([], 5)).toBe(0)
})
