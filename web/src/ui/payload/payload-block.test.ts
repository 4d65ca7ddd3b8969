// @vitest-environment happy-dom
import { expect, test, vi } from 'vitest'
import type { Outcome } from '../../api/outcome'
import { mountWith, until } from '../mounting'
import PayloadBlock, { type Payload } from './payload-block.vue'

function show(payload: Partial<Payload>) {
  const loadWhole = async () => ({ ok: true, value: null }) as const
  const whole = { text: '', bytes: 0, truncated: false, loadWhole, ...payload }
  return mountWith(PayloadBlock, { name: 'Result', payload: whole })
}

type Page = Awaited<ReturnType<typeof show>>

function lines(page: Page): string[] {
  return page.findAll('.line').map((line) => line.element.textContent.trim())
}

function button(page: Page, name: string) {
  const named = (each: { text: () => string; attributes: (name: string) => string | undefined }) =>
    each.text().startsWith(name) || each.attributes('aria-label') === name
  return page.findAll('button').find(named)!
}

test('JSON is formatted and the recorded text can be shown', async () => {
  const page = await show({ text: '{"a":1}', bytes: 7 })

  expect(lines(page)).toEqual(['{', '"a": 1', '}'])
  await button(page, 'As recorded').trigger('click')
  expect(page.get('pre').text()).toBe('{"a":1}')
})

test('JSON values can be collapsed and expanded', async () => {
  const page = await show({ text: '{"list":[1,2,3],"none":[]}', bytes: 26 })

  await button(page, '"list"').trigger('click')
  expect(lines(page)).toEqual(['{', '"list": […] 3 entries', '"none": []', '}'])
  await button(page, '"list"').trigger('click')
  expect(lines(page)).toHaveLength(8)
})

test('JSON escapes are decoded, with control characters made visible', async () => {
  const page = await show({ text: '{"\\u8840\\u538b":"\\u202etxt","n":1.10}', bytes: 1 })

  expect(lines(page)).toEqual(['{', '"血压": "⟨U+202E⟩txt"', '"n": 1.10', '}'])
})

test('search hits in JSON are expanded and marked in turn', async () => {
  const list = Array.from({ length: 400 }, (_, number) => ({ number, word: `w${number}` }))
  const page = await show({ text: JSON.stringify(list), bytes: 1 })
  const field = page.get('input')

  await field.setValue('W399')
  expect(page.text()).toContain('1 of 1')
  await until(() => expect(page.findAll('mark').map((mark) => mark.text())).toEqual(['w399']))
  await field.setValue('"w1')
  expect(page.text()).toContain('1 of 111')
  await field.trigger('keydown', { key: 'Enter' })
  expect(page.text()).toContain('2 of 111')
})

test('text is copied whole, though only its start was loaded', async () => {
  const copied: string[] = []
  vi.stubGlobal('navigator', {
    clipboard: { writeText: async (text: string) => copied.push(text) },
  })
  const loadWhole = async () => ({ ok: true, value: 'all of it' }) as const
  const page = await show({ text: 'all', bytes: 9, truncated: true, loadWhole })

  await button(page, 'Copy: Result').trigger('click')
  await until(() => expect(page.text()).toContain('Copied'))
  expect(copied).toEqual(['all of it'])
  vi.unstubAllGlobals()
})

test('a text that the tree cut is loaded whole on demand', async () => {
  const answer: Outcome<string> = { ok: true, value: '{"a": "whole"}' }
  const loadWhole = async () => answer
  const page = await show({ text: '{"a": "wh', bytes: 700_000, truncated: true, loadWhole })

  expect(page.text()).toContain('The first part of 700kB.')
  await button(page, 'Load all of it').trigger('click')
  await until(() => expect(lines(page)).toEqual(['{', '"a": "whole"', '}']))
  expect(page.text()).not.toContain('The first part')
})

test('a text that fails to load shows the reason and a retry button', async () => {
  const answer: Outcome<string> = { ok: false, failure: { kind: 'away' } }
  const page = await show({ text: 'cut', bytes: 9, truncated: true, loadWhole: async () => answer })

  await button(page, 'Load all of it').trigger('click')
  await until(() => expect(page.get('[role=alert]').text()).toContain('does not answer'))
  expect(button(page, 'Load all of it').attributes('disabled')).toBeUndefined()
})

test('a text of megabytes is shown a part at a time', async () => {
  const page = await show({ text: 'x'.repeat(5_000_000), bytes: 5_000_000 })

  expect(page.get('pre').text()).toHaveLength(100_000)
  await button(page, 'Show 1MB more').trigger('click')
  expect(page.get('pre').text()).toHaveLength(1_100_000)
})

test('a file, nested JSON, addresses and Markdown are shown as what they are', async () => {
  const uri = 'data:image/png;base64,iVBORw0KGgo='
  const text = JSON.stringify({ uri, inside: '{"a":[1]}', link: 'https://a.example/x' })
  const page = await show({ text, bytes: text.length })
  expect(page.get('img').attributes('src')).toBe(uri)
  expect(page.get('a[target]').attributes()).toMatchObject({
    href: 'https://a.example/x',
    rel: 'noopener noreferrer nofollow',
  })
  expect(lines(page)).toContain('"a": [')
  await button(page, 'Show as a string').trigger('click')
  expect(page.text()).toContain('{"a":[1]}')

  const svg = await show({ text: 'data:image/svg+xml;base64,PHN2Zy8+', bytes: 35 })
  expect(svg.find('img').exists()).toBe(false)
  expect(svg.get('a[download]').text()).toBe('Download')
})

test('an empty text differs from a missing one', async () => {
  expect((await show({ text: '', bytes: 0 })).text()).toContain('(an empty text)')
  expect((await show({ text: null, bytes: null })).text()).toBe('')
})

test('a payload over 512 kB is loaded on demand', async () => {
  const loadWhole = vi.fn(async () => ({ ok: true, value: '{"whole":true}' }) as const)
  const page = await show({ text: '{"wh', bytes: 524_288, truncated: true, loadWhole })
  await until(() => expect(lines(page)).toEqual(['{', '"whole": true', '}']))

  await show({ text: '{"wh', bytes: 524_289, truncated: true, loadWhole })
  expect(loadWhole).toHaveBeenCalledTimes(1)
})
