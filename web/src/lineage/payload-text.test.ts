import { expect, test } from 'vitest'
import { gist, laidOutJson, visibleText } from './payload-text'

test('characters that act are shown instead', () => {
  expect(visibleText('\u001b[31mred\u0007')).toBe('␛[31mred␇')
  expect(visibleText('abc\u202etxt.exe')).toBe('abc⟨U+202E⟩txt.exe')
  expect(visibleText('\u007f\u0085')).toBe('␡⟨U+0085⟩')
})

test('text of other alphabets, lines and tabs stay as they are', () => {
  const text = 'Blutdruck 血压 ضغط الدم 👩‍⚕️\n\tline\r\n'

  expect(visibleText(text)).toBe(text)
})

test('a gist is one short line', () => {
  expect(gist('  two\n\n lines ')).toBe('two lines')
  expect(gist('x'.repeat(5_000_000), 10)).toBe('xxxxxxxxxx…')
  expect(gist(null)).toBe('')
})

test('JSON is laid out without changing what it says', () => {
  const text = '{"n":12345678901234567890.10,"a":[1,{}],"e":[ ],"a":"x\\"},{"}'

  expect(laidOutJson(text)).toBe(
    '{\n  "n": 12345678901234567890.10,\n  "a": [\n    1,\n    {}\n  ],\n  "e": [],\n  "a": "x\\"},{"\n}',
  )
})

test('what is not a JSON object or array is not laid out', () => {
  for (const text of ['{"cut": "off', 'plain', '12', '"text"', '', '{"a":1}}']) {
    expect(laidOutJson(text)).toBeNull()
  }
})

test('JSON nested a thousand deep is laid out', () => {
  const text = '[1,'.repeat(1000) + '2' + ']'.repeat(1000)
  const lines = laidOutJson(text)!.split('\n')

  expect(JSON.parse(lines.join(''))).toEqual(JSON.parse(text))
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(100)
})
