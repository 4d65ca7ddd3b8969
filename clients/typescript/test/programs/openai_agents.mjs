// A planner whose two researchers run in parallel, with the OpenAI Agents SDK. One search never ends.
import * as agents from '@openai/agents'
import { OpenAIAgentsInstrumentation } from '@arizeai/openinference-instrumentation-openai-agents'
import { NodeTracerProvider } from '@opentelemetry/sdk-trace-node'
import { TracerSpanProcessor } from 'tracer-lineage'
import { z } from 'zod'

const provider = new NodeTracerProvider({ spanProcessors: [new TracerSpanProcessor()] })
provider.register()
new OpenAIAgentsInstrumentation({ tracerProvider: provider }).manuallyInstrument(agents)

const call = (callId, name, input) => ({
  type: 'function_call',
  callId,
  name,
  status: 'completed',
  arguments: JSON.stringify(input),
})
const text = (words) => ({
  type: 'message',
  role: 'assistant',
  status: 'completed',
  content: [{ type: 'output_text', text: words }],
})

/** Gives its answers in turn. */
class ScriptedModel {
  constructor(...answers) {
    this.answers = answers
  }

  async getResponse() {
    const usage = new agents.Usage({ requests: 1, inputTokens: 10, outputTokens: 2, totalTokens: 12 })
    return { usage, output: this.answers.shift() }
  }
}

const search = agents.tool({
  name: 'search',
  description: 'Search.',
  parameters: z.object({ query: z.string() }),
  execute: async ({ query }) => {
    if (query === 'anemones') await new Promise((resolve) => setTimeout(resolve, 3_600_000))
    return `3 hits for ${query}`
  },
})

const queries = { tides: 'tide calendar', species: 'anemones' }
const ask_researcher = agents.tool({
  name: 'ask_researcher',
  description: 'Ask the researcher.',
  parameters: z.object({ question: z.string() }),
  execute: async ({ question }) => {
    const model = new ScriptedModel(
      [call('call_0', 'search', { query: queries[question] })],
      [text('Found.')],
    )
    const researcher = new agents.Agent({ name: 'researcher', model, tools: [search] })
    return (await agents.run(researcher, question)).finalOutput
  },
})

const model = new ScriptedModel(
  [
    call('call_0', 'ask_researcher', { question: 'tides' }),
    call('call_1', 'ask_researcher', { question: 'species' }),
  ],
  [text('Done.')],
)
const planner = new agents.Agent({ name: 'planner', model, tools: [ask_researcher] })
await agents.run(planner, 'Plan a trip.')
