// A planner whose two researchers run in parallel, with the OpenAI Agents SDK. One search never ends.
import { createServer } from 'node:http'

import * as agents from '@openai/agents'
import { OpenAIAgentsInstrumentation } from '@arizeai/openinference-instrumentation-openai-agents'
import { NodeTracerProvider } from '@opentelemetry/sdk-trace-node'
import OpenAI from 'openai'
import { TracerSpanProcessor } from 'tracer-lineage'
import { z } from 'zod'

const provider = new NodeTracerProvider({ spanProcessors: [new TracerSpanProcessor()] })
provider.register()
new OpenAIAgentsInstrumentation({ tracerProvider: provider }).manuallyInstrument(agents)

const call = (id, name, input) => ({
  id,
  type: 'function',
  function: { name, arguments: JSON.stringify(input) },
})

/** The Chat Completions API of a model that gives its answers by the first message of the user. */
const answers = {
  'Plan a trip.': [
    {
      tool_calls: [
        call('call_0', 'ask_researcher', { question: 'tides' }),
        call('call_1', 'ask_researcher', { question: 'species' }),
      ],
    },
    { content: 'Done.' },
  ],
  tides: [
    { tool_calls: [call('call_0', 'search', { query: 'tide calendar' })] },
    { content: 'Found.' },
  ],
  species: [
    { tool_calls: [call('call_0', 'search', { query: 'anemones' })] },
    { content: 'Found.' },
  ],
}
const api = createServer(async (request, response) => {
  const { messages } = JSON.parse(Buffer.concat(await request.toArray()).toString())
  const asked = messages.find((each) => each.role === 'user').content
  const message = answers[asked][messages.filter((each) => each.role === 'assistant').length]
  response.writeHead(200, { 'content-type': 'application/json' })
  response.end(
    JSON.stringify({
      id: 'chatcmpl-1',
      object: 'chat.completion',
      created: 1,
      model: 'scripted',
      choices: [
        {
          index: 0,
          finish_reason: message.tool_calls ? 'tool_calls' : 'stop',
          message: { role: 'assistant', content: null, ...message },
        },
      ],
      usage: { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 },
    }),
  )
})
await new Promise((resolve) => api.listen(0, '127.0.0.1', resolve))
const baseURL = `http://127.0.0.1:${api.address().port}/v1`
const client = new OpenAI({ apiKey: 'none', baseURL })
const model = new agents.OpenAIChatCompletionsModel(client, 'scripted')

const search = agents.tool({
  name: 'search',
  description: 'Search.',
  parameters: z.object({ query: z.string() }),
  execute: async ({ query }) => {
    if (query === 'anemones') await new Promise((resolve) => setTimeout(resolve, 3_600_000))
    return `3 hits for ${query}`
  },
})

const researcher = new agents.Agent({ name: 'researcher', model, tools: [search] })
const ask_researcher = agents.tool({
  name: 'ask_researcher',
  description: 'Ask the researcher.',
  parameters: z.object({ question: z.string() }),
  execute: async ({ question }) => (await agents.run(researcher, question)).finalOutput,
})
const planner = new agents.Agent({ name: 'planner', model, tools: [ask_researcher] })
await agents.run(planner, 'Plan a trip.')
api.close()
