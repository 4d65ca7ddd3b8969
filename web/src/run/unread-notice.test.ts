// @vitest-environment happy-dom
import { expect, test } from 'vitest'
import { nested } from './forest/example-tree'
import { mountInRun } from './forest/mounting'
import UnreadNotice from './unread-notice.vue'

const notice = (
  unreadSpans: number,
  unreadScopes: string[],
  language: 'en' | 'zh-CN' = 'en',
  refusedSpans = 0,
) =>
  mountInRun(UnreadNotice, { run: { unreadSpans, unreadScopes, refusedSpans } }, nested(), language)

test('a run whose spans were all read has no notice', async () => {
  expect((await notice(0, [])).text()).toBe('')
})

test('a run with unread spans names their scopes, and links to the instructions', async () => {
  const page = await notice(2, ['acme.llm', 'other'])

  expect(page.text()).toContain('2 spans')
  expect(page.text()).toContain('acme.llm, other')
  expect(page.find('a').attributes('href')).toMatch(/\/docs\/guides\/unread-spans\.md$/)
})

test('spans without a scope are counted, in each language', async () => {
  expect((await notice(1, [])).text()).toContain('1 span ')
  expect((await notice(1, [], 'zh-CN')).text()).toContain('1 个')
})

test('a run that is too large shows how many spans were rejected, in each language', async () => {
  expect((await notice(0, [], 'en', 2)).text()).toContain('2 spans were rejected')
  expect((await notice(0, [], 'zh-CN', 2)).text()).toContain('2 个')
})
