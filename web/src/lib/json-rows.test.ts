import { expect, test } from 'vitest'
import { readJson } from './json-outline'
import { jsonPaths, jsonRows, openAtFirst } from './json-rows'

function pathsOf(text: string): string[] {
  const root = readJson(text)!
  return jsonPaths(jsonRows(text, root, openAtFirst(text, root)))
}

test('each value has a path from the outermost one', () => {
  expect(pathsOf('{"items":[{"a b":1},{"c":[2]}],"n":3}').filter(Boolean)).toEqual([
    '$',
    '$.items',
    '$.items[0]',
    '$.items[0]["a b"]',
    '$.items[1]',
    '$.items[1].c',
    '$.items[1].c[0]',
    '$.n',
  ])
})

test('entries count from the first one, although earlier ones are left out', () => {
  const text = JSON.stringify(Array.from({ length: 300 }, (_, number) => number))
  const root = readJson(text)!
  const opening = {
    open: new Set([root.start]),
    parts: new Map([[root.start, { from: 150, to: 152 }]]),
  }

  expect(jsonPaths(jsonRows(text, root, opening)).filter(Boolean)).toEqual([
    '$',
    '$[150]',
    '$[151]',
  ])
})
