import { expect, test } from 'vitest'
import { binsOf } from './run-chart'

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
