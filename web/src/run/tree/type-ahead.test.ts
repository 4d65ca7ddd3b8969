import { expect, test } from 'vitest'
import { rowTyped } from './type-ahead'

const NAMES = ['plan', 'measure', 'plot', 'mean', 'plain']
const typed = (text: string, from: number) => rowTyped(text, from, NAMES.length, (at) => NAMES[at]!)

test('a letter goes to the next row whose name begins with it, and round', () => {
  expect([typed('p', 0), typed('p', 2), typed('p', 4), typed('pp', 0)]).toEqual([2, 4, 0, 2])
})

test('more of a name stays at the row that it fits', () => {
  expect([typed('pl', 0), typed('me', 1), typed('mea', 2), typed('plai', 1)]).toEqual([0, 1, 3, 4])
})

test('what no name begins with leads nowhere', () => {
  expect([typed('x', 0), rowTyped('p', -1, 0, () => '')]).toEqual([-1, -1])
  expect(typed('p', -1)).toBe(0)
})
