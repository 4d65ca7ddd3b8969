// @vitest-environment happy-dom
import { expect, test } from 'vitest'
import { mountWith } from '../ui/mounting'
import ProblemState from './problem-state.vue'

test.each([
  ['en', 'Your key does not allow this.'],
  ['zh-CN', '当前密钥没有此操作的权限。'],
] as const)(
  'a refusal for want of a scope is in %s; the words of the server are folded',
  async (language, text) => {
    const detail = 'This key lacks the `read` scope.'
    const page = await mountWith(
      ProblemState,
      { failure: { kind: 'notAllowed', detail } },
      language,
    )

    expect(page.get('[role="alert"] > p').text()).toBe(text)
    expect(page.get('details:not([open]) [lang="en"]').text()).toBe(detail)
  },
)

test('an answer that is too large: the words of the server stand open, apart from the sentence', async () => {
  const detail = 'This run has too many records: ask for its parts.'
  const failure = { kind: 'tooLarge', detail } as const
  const page = await mountWith(ProblemState, { failure }, 'zh-CN')

  expect(page.get('[role="alert"] > p').text()).toBe('内容过大，无法显示。')
  expect(page.get('details[open] [lang="en"]').text()).toBe(detail)
})
