import { expect, test } from 'vitest'
import type { Message, MessagePart } from '../../../api/shapes'
import { callOf, divideMessages } from './new-messages'

function message(role: Message['role'], ...parts: MessagePart[]): Message {
  return { role, name: null, parts }
}

const text = (said: string): MessagePart => ({ type: 'text', text: said })
const CALL: MessagePart = { type: 'toolCall', id: 'c1', name: 'look', arguments: '{"page":1}' }
const RESULT: MessagePart = { type: 'toolResult', id: 'c1', name: 'look', text: 'found' }
const FIRST = [message('system', text('Be brief.')), message('user', text('Look it up.'))]
const SECOND = [...FIRST, message('assistant', text('I look.'), CALL), message('tool', RESULT)]

const roles = (messages: readonly Message[]) => messages.map(({ role }) => role)

test('at the first call everything but the system prompt is new', () => {
  const divided = divideMessages(FIRST, null)

  expect([roles(divided.system), roles(divided.earlier), roles(divided.fresh)]).toEqual([
    ['system'],
    [],
    ['user'],
  ])
})

test('at a later call the results of the tools that were called are new', () => {
  const divided = divideMessages(SECOND, FIRST)

  expect(roles(divided.earlier)).toEqual(['user', 'assistant'])
  expect(roles(divided.fresh)).toEqual(['tool'])
  expect(callOf(SECOND, 'c1')).toBe(CALL)
  expect(callOf(SECOND, 'other')).toBeNull()
})

test('after a history was shortened, what differs is new', () => {
  const shortened = [FIRST[0]!, message('user', text('Summary so far.'))]
  const divided = divideMessages(shortened, SECOND)

  expect(roles(divided.fresh)).toEqual(['user'])
  expect(divided.earlier).toEqual([])
})
