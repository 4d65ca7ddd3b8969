import { expect, test } from 'vitest'
import type { Message } from '../api/shapes'
import { newMessagesText } from './new-messages-text'

const say = (role: Message['role'], text: string): Message => ({
  role,
  name: null,
  parts: [{ type: 'text', text }],
})
const QUESTION = say('user', 'How was my week?')
const result = (id: string, text: string): Message => ({
  role: 'tool',
  name: null,
  parts: [{ type: 'toolResult', id, name: null, text }],
})

test('a round shows the messages that the round before was not sent', () => {
  const messages = [QUESTION, say('assistant', 'I measure.'), result('a', '78')]

  expect(newMessagesText(messages, [QUESTION])).toBe('tool:\n78')
  expect(newMessagesText(messages, null)).toBe('user:\nHow was my week?\n\ntool:\n78')
  expect(newMessagesText([QUESTION], [QUESTION])).toBe('')
  expect(newMessagesText(null, null)).toBeNull()
})

test('JSON within messages has one form', () => {
  const text = newMessagesText([result('a', '{"b":1,"a":2}')], null)

  expect(text).toBe(newMessagesText([result('a', '{ "a": 2, "b": 1 }')], null))
})

test('the ids of calls are left out', () => {
  expect(newMessagesText([result('a', '78')], null)).toBe(
    newMessagesText([result('b', '78')], null),
  )
})
