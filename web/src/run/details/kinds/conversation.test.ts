import { expect, test } from 'vitest'
import { readConversation } from './conversation'

/** Each part in a line: who, what, of which tool and call, and its text. */
function read(...messages: object[]): string[] {
  return readConversation(JSON.stringify(messages))!.flatMap(({ role, parts }) =>
    parts.map(({ kind, tool, id, text }) => [role, kind, tool, id, text].filter(Boolean).join(' ')),
  )
}

test('what OpenAI sends is read: calls with their arguments, answers with their names', () => {
  expect(
    read(
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: [{ type: 'text', text: 'How was my week?' }] },
      {
        role: 'assistant',
        content: null,
        refusal: null,
        tool_calls: [
          { id: 'call_1', type: 'function', function: { name: 'measure', arguments: '{"n":1}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'call_1', content: 'well' },
    ),
  ).toEqual([
    'system text Be brief.',
    'user text How was my week?',
    'assistant call measure call_1 {"n":1}',
    'tool answer measure call_1 well',
  ])
})

test('what OpenTelemetry and OpenInference keep is read alike', () => {
  expect(
    read(
      { role: 'user', parts: [{ type: 'text', content: 'How was my week?' }] },
      {
        role: 'assistant',
        parts: [
          { type: 'reasoning', content: 'I measure.' },
          { type: 'tool_call', id: 'a', name: 'measure', arguments: { n: 1 } },
        ],
      },
      { role: 'user', parts: [{ type: 'tool_call_response', id: 'a', response: { ok: true } }] },
      { role: 'assistant', tool_calls: [{ id: 'b', name: 'check', arguments: '{}' }] },
      { role: 'tool', name: 'check', tool_call_id: 'b', content: 'fine' },
    ),
  ).toEqual([
    'user text How was my week?',
    'assistant thought I measure.',
    'assistant call measure a {"n":1}',
    'user answer measure a {"ok":true}',
    'assistant call check b {}',
    'tool answer check b fine',
  ])
})

test('what Anthropic sends is read', () => {
  expect(
    read(
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: 'I measure.', signature: 'x' },
          { type: 'tool_use', id: 'a', name: 'measure', input: {} },
        ],
      },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', content: 'well' }] },
    ),
  ).toEqual([
    'assistant thought I measure.',
    'assistant other {"signature":"x"}',
    'assistant call measure a {}',
    'user answer measure a well',
  ])
})

test('what is not understood is kept as it is, and what says nothing is left out', () => {
  expect(
    read(
      { role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }, 7] },
      { role: 'assistant', content: '', tool_calls: [], finish_reason: 'stop' },
      { role: 'assistant', content: '', finish_reason: 'length' },
      { role: 'tool', tool_call_id: '', content: 'whose?' },
    ),
  ).toEqual([
    'user other {"type":"image_url","image_url":{"url":"x"}}',
    'user other {"content":7}',
    'assistant other {"finish_reason":"length"}',
    'tool answer whose?',
  ])
})

test('of ids that come again the latest call is meant', () => {
  const call = (name: string) => ({
    role: 'assistant',
    tool_calls: [{ id: 'same', name, arguments: '1' }],
  })
  const answer = { role: 'tool', tool_call_id: 'same', content: 'ok' }

  expect(
    read(call('one'), answer, call('two'), answer).filter((line) => /answer/.test(line)),
  ).toEqual(['tool answer one same ok', 'tool answer two same ok'])
})

test('what is no conversation is left as it is', () => {
  for (const text of ['', '{', '{}', '[1]', '[null]', '[{"role": 1}]', '"x"']) {
    expect(readConversation(text)).toBeNull()
  }
})
