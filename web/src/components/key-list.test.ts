import { expect, test } from 'vitest'
import { KeyList } from './key-list'

test('a list of keys is an array that knows what it includes', () => {
  const list = new KeyList(new Set(['a', 'b']))

  expect([...list]).toEqual(['a', 'b'])
  expect([list.includes('a'), list.includes('c')]).toEqual([true, false])
  expect(list.map((key) => key)).toEqual(['a', 'b'])
  expect(list.filter((key) => key !== 'a').constructor).toBe(Array)
})
