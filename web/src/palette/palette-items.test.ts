import { expect, test } from 'vitest'
import { isId, matching } from './palette-items'

const same = (text: string) => text

test('an item matches if it has each word in any order and case', () => {
  const items = ['Copy link', 'Open runs', 'Link to copy']

  expect(matching(items, same, 'LINK copy')).toEqual(['Copy link', 'Link to copy'])
  expect(matching(items, same, 'nothing')).toEqual([])
})

test('items that begin with the query come first', () => {
  expect(matching(['Next run', 'Run all', 'Rerun'], same, 'run')).toEqual([
    'Run all',
    'Next run',
    'Rerun',
  ])
})

test('an empty query matches everything in its order', () => {
  expect(matching(['b', 'a'], same, '  ')).toEqual(['b', 'a'])
})

test('ids of records, traces, spans, handles and providers are recognised', () => {
  expect(isId(' 0190a6c0-3f2e-7a10-8c3d-0123456789ab ')).toBe(true)
  expect(isId('0190a6c03f2e7a108c3d0123456789ab')).toBe(true)
  expect(isId('0190a6c03f2e7a108c3d0123456789ab:0123456789abcdef')).toBe(true)
  expect(isId('r0123456789')).toBe(true)
  expect(isId('call_Abc123')).toBe(true)
  expect(isId('invoice 42')).toBe(false)
  expect(isId('invoices')).toBe(false)
})
