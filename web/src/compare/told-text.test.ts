import { expect, test } from 'vitest'
import type { Message } from '../api/shapes'
import { toldText } from './told-text'

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

test('a round is told the messages that the round before was not sent', () => {
  const messages = [QUESTION, say('assistant', 'I measure.'), result('a', '78')]

  expect(toldText(messages, [QUESTION])).toBe('tool:\n78')
  expect(toldText(messages, null)).toBe('user:\nHow was my week?\n\ntool:\n78')
  expect(toldText([QUESTION], [QUESTION])).toBe('')
  expect(toldText(null, null)).toBeNull()
})

test('JSON within messages has one form', () => {
  const told = toldText([result('a', '{"b":1,"a":2}')], null)

  expect(told).toBe(toldText([result('a', '{ "a": 2, "b": 1 }')], null))
})

test('the ids of calls are left out', () => {
  expect(toldText([result('a', '78')], null)).toBe(toldText([result('b', '78')], null))
})
