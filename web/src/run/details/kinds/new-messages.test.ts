import { expect, test } from 'vitest'
import { readConversation } from './conversation'
import { argumentsOf, divideMessages } from './new-messages'

const CALL = { id: 'c1', type: 'function', function: { name: 'look', arguments: '{"page":1}' } }
const FIRST = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: 'Look it up.' },
]
const SECOND = [
  ...FIRST,
  { role: 'assistant', content: 'I look.', tool_calls: [CALL] },
  { role: 'tool', tool_call_id: 'c1', content: 'found' },
]

const read = (messages: object[]) => readConversation(JSON.stringify(messages))!
const roles = (messages: readonly { role: string }[]) => messages.map(({ role }) => role)

test('at the first call everything but the system prompt is new', () => {
  const told = divideMessages(read(FIRST), null)

  expect([roles(told.system), roles(told.earlier), roles(told.fresh)]).toEqual([
    ['system'],
    [],
    ['user'],
  ])
})

test('at a later call the results of the tools that were called are new', () => {
  const told = divideMessages(read(SECOND), read(FIRST))

  expect(roles(told.earlier)).toEqual(['user', 'assistant'])
  expect(roles(told.fresh)).toEqual(['tool'])
  expect(argumentsOf(read(SECOND), 'c1')).toBe('{"page":1}')
  expect(argumentsOf(read(SECOND), 'other')).toBe('')
})

test('after a history was shortened, what differs is new', () => {
  const shortened = [FIRST[0]!, { role: 'user', content: 'Summary so far.' }]
  const told = divideMessages(read(shortened), read(SECOND))

  expect(roles(told.fresh)).toEqual(['user'])
  expect(told.earlier).toEqual([])
})
