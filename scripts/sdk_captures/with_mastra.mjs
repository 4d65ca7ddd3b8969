// Mastra 1: `@mastra/otel-exporter`.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { Mastra } from '@mastra/core'
import { Agent } from '@mastra/core/agent'
import { createTool } from '@mastra/core/tools'
import { Observability } from '@mastra/observability'
import { OtelExporter } from '@mastra/otel-exporter'
import { z } from 'zod'

import { resultOf, run } from './agents.mjs'

const model = createOpenAICompatible({
  name: 'scripted',
  baseURL: run.modelUrl,
  includeUsage: true,
})(run.model)

const toolOf = (name) =>
  createTool({
    id: name,
    description: name,
    inputSchema: z.object({ [run.parameters[name]]: z.string() }),
    execute: (input, { tracingContext }) =>
      resultOf(name, input[run.parameters[name]], (agent, prompt) =>
        ask(agent, prompt, tracingContext),
      ),
  })

const agents = Object.fromEntries(
  Object.entries(run.tools).map(([id, names]) => [
    id,
    new Agent({
      id,
      name: id,
      instructions: `You are the ${id}.`,
      model,
      maxRetries: 0,
      tools: Object.fromEntries(names.map((name) => [name, toolOf(name)])),
    }),
  ]),
)
const exporter = new OtelExporter({
  provider: {
    custom: { endpoint: `${run.receiver}/v1/traces`, protocol: 'http/protobuf' },
  },
  batchSize: 3,
})
const mastra = new Mastra({
  agents,
  logger: false,
  observability: new Observability({
    configs: { otel: { serviceName: 'captures', exporters: [exporter] } },
  }),
})

async function ask(agent, prompt, tracingContext) {
  const answer = await mastra.getAgent(agent).generate(prompt, { maxSteps: 9, tracingContext })
  if (answer.error) throw answer.error
  return answer.text
}

console.log(await ask('planner', run.prompt))
await mastra.shutdown()
