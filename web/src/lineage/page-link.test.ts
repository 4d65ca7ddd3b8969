import { expect, test } from 'vitest'
import { readKeys, readRule, readWindow, writeKeys, writeRule, writeWindow } from './page-link'

test('rules come back from an address as they were put there', () => {
  for (const rule of ['fit', 'steps', 'rounds', 'calls', 'subPlans', 'all', 1, 12] as const) {
    expect(readRule(writeRule(rule))).toBe(rule)
  }
  for (const nonsense of ['', '0', '-1', 'everything', '1e9', '<script>']) {
    expect(readRule(nonsense)).toBe('fit')
  }
})

test('windows come back as exactly as they can be seen', () => {
  expect(writeWindow({ from: 1234.56789, to: 5678.9 })).toBe('1234.57-5678.9')
  expect(writeWindow({ from: 0.12344, to: 0.13344 })).toBe('0.1234-0.1334')
  expect(readWindow('1234.57-5678.9')).toEqual({ from: 1234.57, to: 5678.9 })
  expect(writeWindow(null)).toBeNull()
  for (const nonsense of [
    null,
    '',
    '5',
    '5-5',
    '9-1',
    'a-b',
    '1-Infinity',
    `1-${'9'.repeat(50)}`,
  ]) {
    expect(readWindow(nonsense)).toBeNull()
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
