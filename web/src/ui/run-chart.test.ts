import { expect, test } from 'vitest'
import { binsOf, ticksOf } from './run-chart'

const counted = {
  count: 4,
  intervalSeconds: 60,
  bins: [
    { start: '2026-01-01T00:01:00Z', runs: 3, failed: 1 },
    { start: '2026-01-01T00:04:00Z', runs: 1, failed: 0 },
  ],
  countedBackTo: null,
}

test('the chart has a bar for every interval from the first run to the last', () => {
  const bins = binsOf(counted, null, null)

  expect(bins.map((bin) => [bin.runs, bin.failed])).toEqual([
    [3, 1],
    [0, 0],
    [0, 0],
    [1, 0],
  ])
  expect(bins[0]!.from).toBe(Date.parse('2026-01-01T00:01:00Z'))
})

test('a chosen range is shown whole', () => {
  const from = Date.parse('2026-01-01T00:00:30Z')
  const bins = binsOf(counted, from, Date.parse('2026-01-01T00:06:00Z'))

  expect(bins.map((bin) => bin.runs)).toEqual([0, 3, 0, 0, 1, 0])
  expect(binsOf({ ...counted, bins: [] }, from, null)).toEqual([])
})

test('the axis names round times of the day, and not more than there is room for', () => {
  const hour = 3_600_000
  const from = new Date(2026, 10, 29, 9, 10).getTime()
  const bins = (hours: number) => [{ from, to: from + hours * hour, runs: 1, failed: 0 }]
  const shown = (hours: number, most: number) =>
    ticksOf(bins(hours), most).map(({ at }) => {
      const date = new Date(at)
      return `${date.getDate()} ${date.getHours()}:${date.getMinutes()}`
    })

  expect(shown(4, 6)).toEqual(['29 10:0', '29 11:0', '29 12:0'])
  expect(ticksOf(bins(24), 4).filter(({ isDay }) => isDay)).toHaveLength(1)
  for (const hours of [1, 24, 24 * 30, 24 * 900]) {
    const ticks = ticksOf(bins(hours), 8)
    expect(ticks.length).toBeGreaterThan(0)
    expect(ticks.length).toBeLessThanOrEqual(8)
    expect(ticks.every(({ share }) => share >= 0 && share < 1)).toBe(true)
  }
  expect(ticksOf([], 5)).toEqual([])

  const week = Array.from({ length: 7 }, (_, day) => ({
    from: new Date(2026, 10, 2 + day).getTime(),
    to: new Date(2026, 10, 3 + day).getTime(),
    runs: 1,
    failed: 0,
  }))
  expect(ticksOf(week, 20).map(({ isDay }) => isDay)).toEqual(Array(7).fill(true))
})

test('the axis of a few minutes or seconds has names, and none beyond its end', () => {
  const from = new Date(2026, 10, 29, 9, 10, 7).getTime()
  for (const seconds of [2, 5, 50, 110, 400])
    for (const most of [1, 3, 12]) {
      const ticks = ticksOf([{ from, to: from + seconds * 1_000, runs: 1, failed: 0 }], most)
      expect(ticks.length, `${seconds} s`).toBeGreaterThan(0)
      expect(ticks.length).toBeLessThanOrEqual(most)
      expect(Math.max(...ticks.map(({ share }) => share))).toBeLessThanOrEqual(1 - 0.6 / most)
    }
})
