import { expect, test } from 'vitest'
import { nested, plan, toolCall } from './example-tree'
import { inOrder } from './failures'
import { buildForest, isRecord } from './rows'
import { folded, foldedQuery, isCut, isHit, partsOf, snippet } from './search'

function marked(text: string, query: string): string {
  const parts = partsOf(text, foldedQuery(query))
  return parts.map((part) => (part.hit ? `[${part.text}]` : part.text)).join('')
}

test.each([
  ['Ärger CAFÉ', 'arger cafe'],
  ['ＡＢＣ', 'abc'],
  ['a \n\t b', 'a b'],
  ['血压', '血压'],
  ['Straße ﬁn', 'straße fin'],
  ['ΟΔΟΣ', 'οδοσ'],
  ['"caf\\u00e9 \\u8840"', '"cafe 血"'],
  ['C:\\users', 'c:\\users'],
])('%j is compared as %j', (text, plain) => {
  expect(folded(text)).toBe(plain)
})

test('hits are marked in the text as it was', () => {
  expect(marked('Café, CAFE and cafe\u0301s', 'cafe')).toBe('[Café], [CAFE] and [cafe\u0301]s')
  expect(marked('two\n\n lines', 'two lines')).toBe('[two\n\n lines]')
  expect(marked('aaaa', 'aa')).toBe('[aa][aa]')
  expect(marked('ﬁn', 'f')).toBe('[ﬁ]n')
  expect(marked('ﬁn', 'i')).toBe('[ﬁ]n')
  expect(marked('nothing', 'x')).toBe('nothing')
  expect(marked('nothing', '')).toBe('nothing')
  expect(marked('👩‍⚕️ 血压 152', '血压')).toBe('👩‍⚕️ [血压] 152')
})

test('the parts of a text are the text, whatever is looked for', () => {
  const texts = ['Café ﬁn\n\n x', '\\u00e9\\u00', 'ab\u0301c', '', '   ', '\ud800a\udc00']
  for (const text of texts) {
    for (const query of ['e', 'fi', ' ', 'b', '\\', '\\u0', 'xyz', 'a']) {
      expect(
        partsOf(text, folded(query))
          .map((part) => part.text)
          .join(''),
      ).toBe(text)
    }
  }
})

test('no more hits are marked than can be looked at', () => {
  const parts = partsOf('a'.repeat(5_000_000), 'a', 10)

  expect(parts.filter((part) => part.hit)).toHaveLength(10)
})

test('names, arguments, results, thoughts, errors and whole ids are searched', () => {
  const error = { type: 'ValueError', message: 'The cuff is loose', stack: null }
  const failed = toolCall('failed', { result: null, error, arguments: '{"arm":"left"}' })
  const ordered = inOrder(buildForest(nested([failed])))
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
  const row = buildForest(plan('root', { title: 'one', userRequest: 'two' })).tops[0]!

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
  const [row] = buildForest(plan('root', { summaryTruncated: true })).tops

  expect(isRecord(row) && isCut(row.record)).toBe(true)
  expect(isCut(toolCall('call'))).toBe(false)
})
