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

const LENGTHS = /\b(?:padding|margin|gap)(?:-[a-z]+)*:[^;{}]*?\d(?:rem|em)\b/g

test('text has one of five sizes and three weights, and gaps are on the grid', () => {
  for (const [path, text] of Object.entries(sources)) {
    if (path.endsWith('/tokens.css')) continue
    expect(text.match(/font-size: (?!var\(--text-)[^;]+;/g), path).toBeNull()
    expect(text.match(/font-weight: (?!var\()[^;]+;/g), path).toBeNull()
    expect(text.match(LENGTHS), path).toBeNull()
  }
})

/** The relative luminance of WCAG 2.2. */
function luminance(hex: string): number {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const value = Number.parseInt(hex.slice(at, at + 2), 16) / 255
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4
  })
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!
}

function contrast(one: string, other: string): number {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b)
  return (light! + 0.05) / (dark! + 0.05)
}

const tokens = Object.entries(sources).find(([path]) => path.endsWith('/tokens.css'))![1]

function colour(name: string): [string, string] {
  const found = new RegExp(`--${name}: light-dark\\((#\\w{6}), (#\\w{6})\\)`).exec(tokens)
  return [found![1]!, found![2]!]
}

test('kinds differ in luminance, and stand out from the page', () => {
  for (const theme of [0, 1]) {
    const kinds = ['agent', 'tool', 'step', 'llm'].map((kind) => colour(`kind-${kind}`)[theme]!)
    const ordered = [...kinds].sort((a, b) => luminance(a) - luminance(b))
    for (const [index, kind] of ordered.entries()) {
      expect(contrast(kind, colour('surface')[theme]!), kind).toBeGreaterThanOrEqual(3)
      const next = ordered[index + 1]
      if (next) expect(contrast(kind, next), `${kind} and ${next}`).toBeGreaterThanOrEqual(1.2)
    }
  }
})
