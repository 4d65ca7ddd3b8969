import { expect, test } from 'vitest'
import {
  nextSorting,
  orderOf,
  readColumns,
  readSorting,
  writeColumns,
  writeSorting,
} from './run-columns'

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

test('the API is asked for the order of the column', () => {
  expect(orderOf(null)).toBeUndefined()
  expect(orderOf(readSorting('-when'))).toBe('-start')
  expect(orderOf(readSorting('toolCalls'))).toBe('toolCalls')
})
