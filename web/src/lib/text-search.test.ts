import { expect, test } from 'vitest'
import { folded, foldedQuery, partsOf } from './text-search'

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

test('the parts of a searched text add up to the text', () => {
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
