import { expect, test } from 'vitest'
import en from './en.json'
import zhCN from './zh-CN.json'
import { firstLanguage } from './languages'

function texts(messages: object, path = ''): [key: string, text: string][] {
  return Object.entries(messages).flatMap(([name, value]) =>
    typeof value === 'string'
      ? [[path + name, value] as [string, string]]
      : texts(value, `${path}${name}.`),
  )
}

/** Each once: a language names a value in its plural too. */
function placeholders(text: string): string[] {
  return [...new Set([...text.matchAll(/\{(\w+)\}/g)].map((match) => match[1]!))].sort()
}

test('both languages have the same keys', () => {
  expect(texts(zhCN).map(([key]) => key)).toEqual(texts(en).map(([key]) => key))
})

test('both languages fill in the same values', () => {
  const chinese = new Map(texts(zhCN))

  for (const [key, text] of texts(en)) {
    expect([key, placeholders(chinese.get(key)!)]).toEqual([key, placeholders(text)])
  }
})

test('no text is empty, and none is left in English', () => {
  const english = new Map(texts(en))
  const sameInBoth = ['app.name']

  for (const [key, text] of texts(zhCN)) {
    expect(text.trim(), key).not.toBe('')
    if (!sameInBoth.includes(key)) expect(text, key).not.toBe(english.get(key))
  }
})

test('every text that is asked for by a fixed key exists', () => {
  const sources = import.meta.glob('../**/*.{vue,ts}', {
    query: '?raw',
    import: 'default',
    eager: true,
  })
  const known = new Set(texts(en).map(([key]) => key))

  for (const [path, source] of Object.entries(sources)) {
    for (const [, key] of (source as string).matchAll(/\bt\(\s*'([^']+)'/g)) {
      expect(known.has(key!), `${key} in ${path}`).toBe(true)
    }
  }
})

test.each([
  ['zh-CN', ['en-US'], 'zh-CN'],
  [null, ['fr', 'zh-Hans-CN', 'en'], 'zh-CN'],
  [null, ['de', 'en-GB', 'zh'], 'en'],
  [null, [], 'en'],
  ['klingon', ['zh'], 'zh-CN'],
])('chosen %s, preferring %s, a reader gets %s', (chosen, preferred, language) => {
  expect(firstLanguage(chosen, preferred)).toBe(language)
})
