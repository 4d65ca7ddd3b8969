// The Vercel AI SDK, versions 5, 6 and 7.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import { BatchSpanProcessor } from '@opentelemetry/sdk-trace-base'
import { NodeTracerProvider } from '@opentelemetry/sdk-trace-node'
import * as ai from 'ai'
import { z } from 'zod'

import { resultOf, run } from './agents.mjs'

const exporter = new OTLPTraceExporter({ url: `${run.receiver}/v1/traces` })
const provider = new NodeTracerProvider({
  spanProcessors: [new BatchSpanProcessor(exporter, { scheduledDelayMillis: 15 })],
})
provider.register()

const isV7 = run.sdk.startsWith('vercel_v7')
if (isV7) {
  const { OpenTelemetry } = await import('@ai-sdk/otel')
  ai.registerTelemetry(new OpenTelemetry())
}
const model = createOpenAICompatible({
  name: 'scripted',
  baseURL: run.modelUrl,
  includeUsage: true,
})(run.model)

const toolsOf = (agent) =>
  Object.fromEntries(
    run.tools[agent].map((name) => [
      name,
      ai.tool({
        inputSchema: z.object({ [run.parameters[name]]: z.string() }),
        execute: (input) => resultOf(name, input[run.parameters[name]], ask),
      }),
    ]),
  )

async function ask(agent, prompt) {
  const options = {
    model,
    prompt,
    [isV7 ? 'instructions' : 'system']: `You are the ${agent}.`,
    tools: toolsOf(agent),
    maxRetries: 0,
    stopWhen: (ai.isStepCount ?? ai.stepCountIs)(9),
    ...(isV7
      ? { telemetry: { functionId: agent } }
      : { experimental_telemetry: { isEnabled: true, functionId: agent } }),
  }
  if (!run.sdk.endsWith('_stream')) return (await ai.generateText(options)).text
  let failure
  const result = ai.streamText({ ...options, onError: ({ error }) => (failure = error) })
  await result.consumeStream()
  if (failure !== undefined) throw failure
  return await result.text
}

console.log(await ask('planner', run.prompt))
await provider.shutdown()
