import { expect, test } from 'vitest'
import { excerpt, prose, visibleText } from './payload-text'

test('characters that act are shown instead', () => {
  expect(visibleText('\u001b[31mred\u0007')).toBe('␛[31mred␇')
  expect(visibleText('abc\u202etxt.exe')).toBe('abc⟨U+202E⟩txt.exe')
  expect(visibleText('\u007f\u0085')).toBe('␡⟨U+0085⟩')
})

test('text of other alphabets, lines and tabs stay as they are', () => {
  const text = 'Blutdruck 血压 ضغط الدم 👩‍⚕️\n\tline\r\n'

  expect(visibleText(text)).toBe(text)
})

test('marks of Markdown are left out of a short form', () => {
  expect(prose('## Plan\n**Fly** to `SEA` at 3 * 4')).toBe('Plan Fly to SEA at 3 * 4')
  expect(prose('See [the ledger](https://ledger.example/open).')).toBe('See the ledger.')
  expect(prose('It is:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\nDone')).toBe(
    'It is: a · b; 1 · 2; 3 · 4 Done',
  )
  expect(prose('**129.00 EUR**; it')).toBe('129.00 EUR; it')
  // A shell's pipe is no table.
  expect(prose('ls | wc')).toBe('ls | wc')
})

test('a excerpt is one short line', () => {
  expect(excerpt('  two\n\n lines ')).toBe('two lines')
  expect(excerpt('x'.repeat(5_000_000), 10)).toBe('xxxxxxxxxx…')
  expect(excerpt(null)).toBe('')
})
