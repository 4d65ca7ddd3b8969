import { expect, test } from 'vitest'

const sources = import.meta.glob(['../**/*.vue', '../**/*.css'], {
  query: '?raw',
  import: 'default',
  eager: true,
}) as Record<string, string>

test('colours are in the token file only', () => {
  for (const [path, text] of Object.entries(sources)) {
    if (path.endsWith('/tokens.css')) continue
    expect(text.match(/#[0-9a-f]{3,8}\b|\b(rgb|hsl|oklch|color-mix)a?\(/gi), path).toBeNull()
  }
})

test('every token that is used exists', () => {
  const defined = new Set(
    Object.values(sources).flatMap((text) => text.match(/--[\w-]+(?=:)/g) ?? []),
  )

  for (const [path, text] of Object.entries(sources)) {
    for (const [, name] of text.matchAll(/var\((--[\w-]+)\)/g)) {
      expect(defined.has(name!), `${name} in ${path}`).toBe(true)
    }
  }
})

test('no file reaches 250 lines', () => {
  for (const [path, text] of Object.entries(sources)) {
    expect(text.split('\n').length, path).toBeLessThan(250)
  }
})
