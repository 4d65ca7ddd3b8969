import { expect, test } from 'vitest'
import type { ToolStats } from '../api/shapes'
import {
  COLUMNS,
  MOST_CALLED,
  readSorting,
  sortingAfter,
  sortTools,
  writeSorting,
  type Sorting,
} from './tool-sorting'

function tool(name: string, calls: number, p95Ms: number | null, latestAt: string): ToolStats {
  return { name, calls, p95Ms, latestAt } as ToolStats
}

const TOOLS = [
  tool('tool 10', 3, null, '2026-01-01T00:00:00Z'),
  tool('tool 2', 9, 5, '2026-01-01T02:00:00+01:00'),
  tool('ask', 3, 70, '2026-01-01T00:30:00Z'),
]

function names(sorting: Sorting): string[] {
  return sortTools(TOOLS, sorting, 'en').map((each) => each.name)
}

test('tools are sorted by number, moment and name', () => {
  expect(names({ by: 'calls', descending: true })).toEqual(['tool 2', 'ask', 'tool 10'])
  expect(names({ by: 'latestAt', descending: true })).toEqual(['tool 2', 'ask', 'tool 10'])
  expect(names({ by: 'name', descending: false })).toEqual(['ask', 'tool 2', 'tool 10'])
})

test('what has no value comes last, either way', () => {
  expect(names({ by: 'p95Ms', descending: true })).toEqual(['ask', 'tool 2', 'tool 10'])
  expect(names({ by: 'p95Ms', descending: false })).toEqual(['tool 2', 'ask', 'tool 10'])
})

test('an order comes back from an address as it was put there', () => {
  for (const by of COLUMNS) {
    for (const descending of [true, false]) {
      expect(readSorting(writeSorting({ by, descending }))).toEqual({ by, descending })
    }
  }
  for (const nonsense of [null, '', '-', 'toString', '--calls']) {
    expect(readSorting(nonsense)).toEqual(MOST_CALLED)
  }
})

test('a second click turns the order around', () => {
  const once = sortingAfter(MOST_CALLED, 'p95Ms')

  expect(once).toEqual({ by: 'p95Ms', descending: true })
  expect(sortingAfter(once, 'p95Ms').descending).toBe(false)
  expect(sortingAfter(once, 'name').descending).toBe(false)
})
