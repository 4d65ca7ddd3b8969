import { expect, test } from 'vitest'
import { renderMarkdown } from './markdown'

test('tables, lists and code are rendered, aligned by classes', () => {
  const html = renderMarkdown('## Open\n\n| a | b |\n|---|--:|\n| 1 | **2** |\n\n- one\n\n`x`')

  expect(html).toContain('<h2 dir="auto">Open</h2>')
  expect(html).toContain('<td class="align-right"><strong>2</strong></td>')
  expect(html).toContain('<li>one</li>')
  expect(html).not.toContain('style=')
})

test('HTML is text, and no script address is a link', () => {
  const html = renderMarkdown('<img src=x onerror=alert(1)> [a](javascript:alert(1)) <b>')

  expect(html).toContain('&lt;img')
  expect(html).not.toContain('<img')
  expect(html).not.toContain('href="javascript')
})

test('a link opens a page that learns nothing, and a picture is not loaded', () => {
  const html = renderMarkdown('[here](https://a.example/x) ![secret](https://b.example/p.png)')

  expect(html).toContain('rel="noopener noreferrer nofollow"')
  expect(html).toContain('target="_blank"')
  expect(html).not.toContain('<img')
  expect(html).toContain('secret (https://b.example/p.png)')
})

test('each block has the direction of its text, and addresses are links', () => {
  const html = renderMarkdown('> السلام\n\n- البند\n\nSee https://a.example/x.')

  expect(html).toMatch(/<blockquote dir="auto">\s*<p>/)
  expect(html).toMatch(/<ul dir="auto">\s*<li>/)
  expect(html).toContain('<p dir="auto">See <a href="https://a.example/x"')
})
