// @vitest-environment happy-dom
import { expect, test, vi } from 'vitest'
import type { Outcome } from '../api/outcome'
import { plan } from '../lineage/example-tree'
import type { Payload } from '../state/whole-record'
import { mountWith } from './mounting'
import PayloadBlock from './payload-block.vue'

function show(payload: Partial<Payload>) {
  const loadWhole = async () => ({ ok: true, value: null }) as const
  const whole = { text: '', bytes: 0, truncated: false, loadWhole, ...payload }
  return mountWith(PayloadBlock, { name: 'Result', payload: whole }, plan('root'))
}

test('JSON is laid out, and can be seen as it was recorded', async () => {
  const page = await show({ text: '{"a":1}', bytes: 7 })

  expect(page.get('pre').text()).toBe('{\n  "a": 1\n}')
  await page.get('button').trigger('click')
  expect(page.get('pre').text()).toBe('{"a":1}')
})

test('a text that the tree cut is loaded whole on demand', async () => {
  const answer: Outcome<string> = { ok: true, value: '{"a": "whole"}' }
  const loadWhole = async () => answer
  const page = await show({ text: '{"a": "wh', bytes: 14, truncated: true, loadWhole })

  expect(page.text()).toContain('The first part of 14 bytes.')
  await page.get('button').trigger('click')
  await vi.waitFor(() => expect(page.get('pre').text()).toBe('{\n  "a": "whole"\n}'))
  expect(page.text()).not.toContain('The first part')
})

test('a text that can not be loaded says why and can be tried again', async () => {
  const answer: Outcome<string> = { ok: false, failure: { kind: 'away' } }
  const page = await show({ text: 'cut', bytes: 9, truncated: true, loadWhole: async () => answer })

  await page.get('button').trigger('click')
  await vi.waitFor(() => expect(page.get('[role=alert]').text()).toContain('does not answer'))
  expect(page.get('button').attributes('disabled')).toBeUndefined()
})

test('a text of megabytes is shown a part at a time', async () => {
  const page = await show({ text: 'x'.repeat(5_000_000), bytes: 5_000_000 })

  expect(page.get('pre').text()).toHaveLength(100_000)
  await page.get('button').trigger('click')
  expect(page.get('pre').text()).toHaveLength(1_100_000)
})

test('an empty text is told from one that is not there', async () => {
  expect((await show({ text: '', bytes: 0 })).text()).toContain('(an empty text)')
  expect((await show({ text: null, bytes: null })).text()).toBe('')
})
