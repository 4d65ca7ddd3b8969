import { expect, test } from 'vitest'
import { foldedQuery } from '../../lib/text-search'
import { forestOf, nested, plan, toolCall } from '../forest/example-tree'
import { isRecord } from '../forest/rows'
import { isCut, isHit, snippet } from './search'

test('names, arguments, results, thoughts, errors and whole ids are searched', () => {
  const error = { type: 'ValueError', message: 'The cuff is loose', stack: null }
  const failed = toolCall('failed', { result: null, error, arguments: '{"arm":"left"}' })
  const ordered = forestOf(nested([failed])).all
  const found = (query: string) =>
    ordered.filter((row) => isHit(row, foldedQuery(query))).map((row) => row.key)

  expect(found('MEDICATION_check')).toEqual(['opener'])
  expect(found('look it up')).toEqual(['round'])
  expect(found('loose')).toEqual(['failed'])
  expect(found('"left"')).toEqual(['failed'])
  expect(found('inner')).toEqual(['inner'])
  expect(found('inne')).toEqual(['inner'])
  expect(found('sub-step')).toEqual(['sub-step'])
  expect(found('p-1')).toEqual(['other', 'opener', 'inner'])
  expect(found('nowhere')).toEqual([])
  expect(found('')).toEqual([])
})

test('nothing is found across two texts of a record', () => {
  const row = forestOf(plan('root', { title: 'one', userRequest: 'two' })).tops[0]!

  expect(isHit(row, foldedQuery('one two'))).toBe(false)
})

test('a hit that a row does not show is quoted with what is around it', () => {
  const result = `${'x'.repeat(500)}\nthe needle is here${'y'.repeat(500)}`
  const call = toolCall('call', { result })

  expect(snippet(call, 'needle', ['tool_call', 'arguments'])).toMatch(/^…x+ the needle is herey+$/)
  expect(snippet(call, 'needle', ['a NEEDLE that is shown'])).toBeNull()
  expect(snippet(call, 'nowhere', [])).toBeNull()
  expect(snippet(call, '', [])).toBeNull()
})

test('a record of which the tree has a part only is known', () => {
  const [row] = forestOf(plan('root', { summaryTruncated: true })).tops

  expect(isRecord(row) && isCut(row.record)).toBe(true)
  expect(isCut(toolCall('call'))).toBe(false)
})
