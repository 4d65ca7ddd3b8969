import { expect, test } from 'vitest'
import type { Run } from '../api/shapes'
import {
  nextSorting,
  readColumns,
  readSorting,
  sortRuns,
  writeColumns,
  writeSorting,
} from './run-columns'

function run(rootPlanId: string, durationMs: number | null): Run {
  return { rootPlanId, durationMs } as Run
}

test('columns and sorting are in the address if they are not the standard', () => {
  expect(writeColumns(readColumns(null))).toBeNull()
  expect(readColumns('cost.tags.nonsense')).toEqual(['cost', 'tags'])
  expect(writeColumns(['cost', 'tags'])).toBe('cost.tags')
  expect(writeColumns([])).toBe('none')
  expect(readColumns('none')).toEqual([])
  expect(readSorting('-cost')).toEqual({ key: 'cost', descending: true })
  expect(writeSorting(readSorting('duration'))).toBe('duration')
  expect(readSorting('agent')).toBeNull()
})

test('a column sorts descending, then ascending, then not at all', () => {
  const first = nextSorting(null, 'cost')
  const second = nextSorting(first, 'cost')

  expect([first, second, nextSorting(second, 'cost')]).toEqual([
    { key: 'cost', descending: true },
    { key: 'cost', descending: false },
    null,
  ])
})

test('runs without a value are last in both directions', () => {
  const runs = [run('none', null), run('short', 5), run('long', 50)]
  const order = (descending: boolean) =>
    sortRuns(runs, { key: 'duration', descending }).map((each) => each.rootPlanId)

  expect(order(true)).toEqual(['long', 'short', 'none'])
  expect(order(false)).toEqual(['short', 'long', 'none'])
  expect(sortRuns(runs, null)).toBe(runs)
})
