import { expect, test } from 'vitest'
import type { Run } from '../api/shapes'
import { binsOf } from './run-chart'

function run(startedAt: string | null, status = 'succeeded'): Run {
  return { startedAt, status } as Run
}

test('every run with a start is in one bin, and failed ones count twice', () => {
  const runs = [
    run('2026-01-01T00:00:00Z'),
    run('2026-01-01T00:30:00Z', 'failed'),
    run('2026-01-01T01:00:00Z'),
    run(null),
  ]
  const bins = binsOf(runs, null, Date.parse('2026-01-01T01:00:00Z'))

  expect(bins).toHaveLength(60)
  expect(bins[0]!.runs).toBe(1)
  expect(bins[30]).toMatchObject({ runs: 1, failures: 1 })
  expect(bins[59]!.runs).toBe(1)
  expect(binsOf([], null, 0)).toEqual([])
})
