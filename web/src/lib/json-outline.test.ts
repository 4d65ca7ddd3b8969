import { expect, test } from 'vitest'
import { entriesOf, findInJson, readJson, shownValue } from './json-outline'
import { jsonRows, openAtFirst, openToHit, showMore, type JsonOpening } from './json-rows'

function outline(text: string, opening?: JsonOpening): string[] {
  const root = readJson(text)!
  return jsonRows(text, root, opening ?? openAtFirst(text, root)).map((row) => {
    const indent = '  '.repeat(row.depth)
    if (row.kind === 'end') return `${indent}end`
    if (row.kind !== 'value') return `${indent}${row.left} ${row.kind}`
    const { key, value } = row.entry
    const isOpened = value.kind === 'object' || value.kind === 'array'
    const shown = isOpened ? `${value.kind} ${value.count}` : text.slice(value.start, value.end)
    return `${indent}${key === null ? '' : `${key}: `}${shown}`
  })
}

test('JSON is parsed without changing its values', () => {
  const text = ' { "n" : 12345678901234567890.10 ,"a":[1,{ }],"e":[ ],"a":"x\\"},{" ,"q":"\\\\"} '

  expect(outline(text)).toEqual([
    'object 5',
    '  "n": 12345678901234567890.10',
    '  "a": array 2',
    '    1',
    '    object 0',
    '  end',
    '  "e": array 0',
    '  "a": "x\\"},{"',
    '  "q": "\\\\"',
    'end',
  ])
})

test('text other than a JSON object or array is not parsed', () => {
  for (const text of ['{"cut": "off', 'plain', '12', '"text"', '', '{"a":1}}', '[1,]', '{a:1}']) {
    expect(readJson(text)).toBeNull()
  }
})

test('every value is found again as JSON itself reads it', () => {
  const value = { a: [true, null, -1.5e3, '"', '\\', ',]}'], b: { 'k:"': [[], {}, [[]]] }, c: '' }
  for (const text of [JSON.stringify(value), JSON.stringify(value, null, 3)]) {
    const root = readJson(text)!
    const entries = entriesOf(text, root, 100)
    const read = entries.map(({ key, value: { start, end } }) => [
      JSON.parse(key!),
      JSON.parse(text.slice(start, end)),
    ])
    expect(Object.fromEntries(read)).toEqual(value)
  }
})

test('a long array is shown in parts', () => {
  const text = JSON.stringify(Array.from({ length: 250 }, (_, number) => number))

  expect(outline(text).at(-2)).toBe('  150 after')
  expect(outline(text)).toHaveLength(103)
})

test('JSON nested a thousand deep, or of megabytes, is read where it is open', () => {
  const deep = '[1,'.repeat(1000) + '2' + ']'.repeat(1000)
  const long = JSON.stringify(Array.from({ length: 500_000 }, () => ({ a: 1 })))
  const inOneLine = JSON.stringify({ text: 'x'.repeat(5_000_000) })

  expect(outline(deep).length).toBeLessThan(100)
  expect(outline(long)).toHaveLength(103)
  expect(outline(inOneLine)).toHaveLength(3)
})

test('strings are shown without their escapes', () => {
  expect(shownValue('"caf\\u00e9\\n"')).toBe('"café\n"')
  expect(shownValue('"plain"')).toBe('"plain"')
  expect(shownValue('12')).toBe('12')
})

test('keys and values are found, and opened to', () => {
  const text = '{"a":{"Needle":[1]},"b":["x","a n\\u00e9edle",2],"n":"needles"}'
  const root = readJson(text)!
  const hits = findInJson(text, root, 'needle', 10)

  expect(hits.map(({ start }) => text.slice(start, start + 4))).toEqual(['[1]}', '"a n', '"nee'])
  const closed = { open: new Set<number>(), parts: new Map() }
  expect(outline(text, openToHit(hits[1]!, closed))).toEqual([
    'object 3',
    '  "a": object 1',
    '  "b": array 3',
    '    "x"',
    '    "a n\\u00e9edle"',
    '    2',
    '  end',
    '  "n": "needles"',
    'end',
  ])
  expect(findInJson(text, root, 'needle', 2)).toHaveLength(2)
  expect(findInJson(text, root, '', 10)).toEqual([])
})

test('a hit far down a long array is among what is shown', () => {
  const text = JSON.stringify(Array.from({ length: 999 }, (_, number) => `w${number}`))
  const root = readJson(text)!
  const [hit] = findInJson(text, root, 'w998', 10)

  const opening = openToHit(hit!, openAtFirst(text, root))
  const lines = outline(text, opening)

  expect(lines.slice(0, 3)).toEqual(['array 999', '  948 before', '  "w948"'])
  expect(lines.slice(-2)).toEqual(['  "w998"', 'end'])
  const [, more] = jsonRows(text, root, opening)
  expect(more?.kind).toBe('before')
  if (more?.kind === 'before') {
    expect(outline(text, showMore(more, opening))).toHaveLength(1001)
  }
})
