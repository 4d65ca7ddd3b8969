import { expect, test } from 'vitest'
import { readKeys, readRule, writeKeys, writeRule } from './opening-link'

test('rules come back from an address as they were put there', () => {
  for (const rule of ['fit', 'steps', 'rounds', 'calls', 'subPlans', 'all', 1, 12] as const) {
    expect(readRule(writeRule(rule))).toBe(rule)
  }
  for (const nonsense of ['', '0', '-1', 'everything', '1e9', '<script>']) {
    expect(readRule(nonsense)).toBe('fit')
  }
})

test('keys are as short as tells them apart', () => {
  const all = ['0000-aaaa1111', '0000-bbbb2222', '1234-bbbb2222', 'unplaced', 'call:0000-cccc3333']

  expect(writeKeys(new Set(['0000-aaaa1111']), all)).toBe('aa1111')
  expect(writeKeys(new Set(), all)).toBeNull()
  for (const key of all) {
    expect(readKeys(writeKeys(new Set([key]), all), all)).toEqual(new Set([key]))
  }
  expect(readKeys(writeKeys(new Set(all), all), all)).toEqual(new Set(all))
})

test('keys that the tree does not hold, and more than an address has room for, are left out', () => {
  const all = Array.from({ length: 500 }, (_, number) => `key-${String(number).padStart(6, '0')}`)

  expect(readKeys('nowhere..', all)).toEqual(new Set())
  expect(readKeys(writeKeys(new Set(all), all), all)).toEqual(new Set(all.slice(-60)))
})
