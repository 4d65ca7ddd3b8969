import { expect, test } from 'vitest'
import { readJson } from '../lib/json-outline'
import { diffTexts, laidOut, shownParts, type DiffPart } from './text-diff'

function side(parts: readonly DiffPart[], left: boolean): string {
  return parts
    .filter((part) => part.kind !== (left ? 'added' : 'removed'))
    .map((part) => part.text)
    .join('')
}

/** Removed parts in brackets, added parts in braces. */
function read(left: string, right: string): string {
  const marks = { same: ['', ''], removed: ['[', ']'], added: ['{', '}'] }
  return diffTexts(left, right)!
    .map(({ kind, text }) => `${marks[kind][0]}${text}${marks[kind][1]}`)
    .join('')
}

const laid = (text: string) => laidOut(text, readJson(text)!)

test('within a line that changed, the words that changed are marked', () => {
  expect(read('pulse 78, at rest', 'pulse 81, at rest')).toBe('pulse [78]{81}, at rest')
  expect(read('take one red pill now', 'take two blue pills now')).toBe(
    'take [one red pill]{two blue pills} now',
  )
  expect(read('one\ntwo\nthree\n', 'one\nthree\n')).toBe('one\n[two\n]three\n')
  expect(read('سأبحث عن الفاتورة الآن', 'سأرد عن الفاتورة الآن')).toBe(
    '[سأبحث]{سأرد} عن الفاتورة الآن',
  )
  expect(read('服用布洛芬四百毫克', '服用阿司匹林四百毫克')).toMatch(/^服用.*四百毫克$/)
})

test('what has little in common is one text and then the other', () => {
  expect(read('The cuff is loose.', 'Everything went well.')).toBe(
    '[The cuff is loose.]{Everything went well.}',
  )
})

test('JSON is compared entry by entry, each value as it was written', () => {
  const left = '{"id":12345678901234567890,"tags":["a","b"],"none":{}}'
  const right = '{"id":12345678901234567891,"tags":["a","b"],"none":{}}'

  expect(laid(left)).toBe(
    '{\n  "id": 12345678901234567890,\n  "none": {},\n  "tags": [\n    "a",\n    "b"\n  ]\n}',
  )
  expect(read(left, right)).toContain('"id": [12345678901234567890]{12345678901234567891},')
})

test('brackets and commas within strings lay out nothing', () => {
  expect(laid('["a,{\\"b\\":[",""]')).toBe('[\n  "a,{\\"b\\":[",\n  ""\n]')
})

test('texts that are too long are not compared, and wholly different ones are at once', () => {
  const long = 'x'.repeat(200_001)
  const lines = (word: string) =>
    Array.from({ length: 20_000 }, (_, number) => `${word}${number}`).join('\n')

  expect(diffTexts(long, '')).toBeNull()
  expect(diffTexts(lines('a'), lines('b'))!.map((part) => part.kind)).toEqual(['removed', 'added'])
})

test('both texts can be read off their parts, whatever they are', () => {
  // A small generator of numbers that look random and are the same in every run.
  let state = 7
  const next = (below: number) => (state = (state * 48_271) % 2_147_483_647) % below
  const words = ['red', 'green', 'blue', ' ', ' ', '\n', ',', '🩺', '"', '界']
  const text = () => Array.from({ length: next(40) }, () => words[next(words.length)]).join('')

  for (let round = 0; round < 500; round += 1) {
    const [left, right] = [text(), text()]
    const parts = diffTexts(left, right)!
    expect([side(parts, true), side(parts, false)]).toEqual([left, right])
    expect(parts.every((part) => part.text !== '')).toBe(true)
  }
})

test('white space, the order of keys and escapes are no difference', () => {
  const parts = diffTexts('{"b":"\\u00e9","a":[1,2]}', '{ "a" : [1, 2],\n"b": "é" }')!

  expect(parts.map((part) => part.kind)).toEqual(['same'])
  expect(read('{"n":1.0}', '{"n":1}')).toContain('"n": 1[.0]')
})

test('of a long stretch that is the same only what is near a difference is shown', () => {
  const lines = Array.from({ length: 50 }, (_, number) => `line ${number}\n`).join('')
  const parts = shownParts(
    diffTexts(`${lines}old words here\n${lines}`, `${lines}new words here\n${lines}`)!,
  )

  expect(parts.map((part) => [part.kind, part.lines])).toEqual([
    ['folded', 47],
    ['same', 0],
    ['removed', 0],
    ['added', 0],
    ['same', 0],
    ['folded', 48],
  ])
  expect(parts[1]!.text).toBe('line 47\nline 48\nline 49\n')
})

test('added and removed lines differ from changed words', () => {
  const whole = (left: string, right: string) =>
    shownParts(diffTexts(left, right)!)
      .filter((part) => part.kind !== 'same')
      .map((part) => part.isWhole)

  expect(whole('one\ntwo\nthree', 'one\nthree')).toEqual([true])
  expect(whole('pulse 78 now\n', 'pulse 81 now\n')).toEqual([false, false])
  expect(whole('The cuff is loose.', 'Everything went well.')).toEqual([true, true])
})
