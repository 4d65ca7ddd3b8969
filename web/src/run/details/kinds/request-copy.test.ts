import { expect, test } from 'vitest'
import { thinkAct } from '../../forest/example-tree'
import { requestCurl, requestJson } from './request-copy'

const asked = {
  thinkAct: thinkAct('round', { model: 'gpt-5-mini' }),
  messages: `[{"role":"user","content":"What's new?"}]`,
  parameters: '{"temperature":0.2}',
  tools: null,
}

test('a request contains the model, its parameters and the messages', () => {
  expect(JSON.parse(requestJson(asked))).toEqual({
    model: 'gpt-5-mini',
    temperature: 0.2,
    messages: [{ role: 'user', content: "What's new?" }],
  })
})

test('a command quotes the request for a shell and names the key', () => {
  const command = requestCurl(asked)

  expect(command).toContain(`What'\\''s new?`)
  expect(command).toContain('$OPENAI_API_KEY')
  const claude = { ...asked, thinkAct: thinkAct('round', { model: 'claude-5' }) }
  expect(requestCurl(claude)).toContain('api.anthropic.com')
})
