// A planner whose two researchers run in parallel, with the Vercel AI SDK. One search never ends.
import { OpenTelemetry } from '@ai-sdk/otel'
import { NodeTracerProvider } from '@opentelemetry/sdk-trace-node'
import { generateText, isStepCount, registerTelemetry, tool } from 'ai'
import { MockLanguageModelV4 } from 'ai/test'
import { TracerSpanProcessor } from 'tracer-lineage'
import { z } from 'zod'

const provider = new NodeTracerProvider({ spanProcessors: [new TracerSpanProcessor()] })
provider.register()
registerTelemetry(new OpenTelemetry())

const call = (id, toolName, input) => ({
  type: 'tool-call',
  toolCallId: id,
  toolName,
  input: JSON.stringify(input),
})

function scripted(...answers) {
  return new MockLanguageModelV4({
    modelId: 'scripted',
    doGenerate: answers.map((content) => ({
      content,
      finishReason: { unified: content[0].type === 'text' ? 'stop' : 'tool-calls' },
      usage: {
        inputTokens: { total: 10, noCache: 10 },
        outputTokens: { total: 2, text: 2 },
      },
      warnings: [],
    })),
  })
}

const agent = (name, model, tools, prompt) =>
  generateText({
    model,
    tools,
    prompt,
    stopWhen: isStepCount(5),
    telemetry: { functionId: name },
  })

const search = tool({
  inputSchema: z.object({ query: z.string() }),
  execute: async ({ query }) => {
    if (query === 'anemones') await new Promise((resolve) => setTimeout(resolve, 3_600_000))
    return `3 hits for ${query}`
  },
})

const queries = { tides: 'tide calendar', species: 'anemones' }
const ask_researcher = tool({
  inputSchema: z.object({ question: z.string() }),
  execute: async ({ question }) => {
    const model = scripted(
      [call('call_0', 'search', { query: queries[question] })],
      [{ type: 'text', text: 'Found.' }],
    )
    return (await agent('researcher', model, { search }, question)).text
  },
})

const planner = scripted(
  [
    call('call_0', 'ask_researcher', { question: 'tides' }),
    call('call_1', 'ask_researcher', { question: 'species' }),
  ],
  [{ type: 'text', text: 'Done.' }],
)
await agent('planner', planner, { ask_researcher }, 'Plan a trip.')
