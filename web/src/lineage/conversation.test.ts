import { expect, test } from 'vitest'
import { readConversation } from './conversation'

test('messages are read with what they say and what else they hold', () => {
  const text = JSON.stringify([
    { role: 'user', content: 'How was my week?' },
    { role: 'assistant', content: null, tool_calls: [{ id: '' }] },
    { role: 'tool', content: [{ type: 'text' }], tool_calls: [] },
  ])

  expect(readConversation(text)).toEqual([
    { role: 'user', text: 'How was my week?', rest: '' },
    { role: 'assistant', text: '', rest: '{"tool_calls":[{"id":""}]}' },
    { role: 'tool', text: '', rest: '{"content":[{"type":"text"}]}' },
  ])
})

test('what is no conversation is left as it is', () => {
  for (const text of ['', '{', '{}', '[1]', '[null]', '[{"role": 1}]', '"x"']) {
    expect(readConversation(text)).toBeNull()
  }
})
