import { expect, test } from 'vitest'
import { rowWindow } from './row-window'

const VIEW = { scrollTop: 0, height: 100, rowHeight: 10 }

test('visible rows and a few beyond are rendered', () => {
  expect(rowWindow(1_000, { ...VIEW, scrollTop: 500 }, -1)).toEqual(
    Array.from({ length: 22 }, (_, index) => 44 + index),
  )
  expect(rowWindow(3, VIEW, -1)).toEqual([0, 1, 2])
  expect(rowWindow(0, VIEW, 0)).toEqual([])
})

test('the row with the keyboard stays in the page, in its place', () => {
  const below = rowWindow(1_000, VIEW, 900)
  const above = rowWindow(1_000, { ...VIEW, scrollTop: 500 }, 2)

  expect([below.at(-1), above[0]]).toEqual([900, 2])
  expect(rowWindow(1_000, VIEW, 3)).toEqual(rowWindow(1_000, VIEW, -1))
})
