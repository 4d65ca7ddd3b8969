/** A model call as a request that can be sent again. */
import type { ThinkActNode } from '../../../api/shapes'

interface Asked {
  thinkAct: ThinkActNode
  /** Texts of JSON, as they were recorded. */
  messages: string | null
  parameters: string | null
  tools: string | null
}

/** Returns the request as the text of a JSON object. */
export function requestJson({ thinkAct, messages, parameters, tools }: Asked): string {
  return JSON.stringify(
    {
      model: thinkAct.model ?? thinkAct.requestedModel,
      ...(jsonOf(parameters) as object | null),
      messages: jsonOf(messages) ?? [],
      ...(tools === null ? {} : { tools: jsonOf(tools) }),
    },
    null,
    2,
  )
}

function jsonOf(text: string | null): unknown {
  try {
    return text === null ? null : JSON.parse(text)
  } catch {
    return null
  }
}

const ANTHROPIC = /^claude/i

/** Returns a shell command that sends the request; keys are named, never included. */
export function requestCurl(asked: Asked): string {
  const model = asked.thinkAct.model ?? asked.thinkAct.requestedModel ?? ''
  const target = ANTHROPIC.test(model)
    ? [
        'https://api.anthropic.com/v1/messages',
        '-H "x-api-key: $ANTHROPIC_API_KEY" -H "anthropic-version: 2023-06-01"',
      ]
    : [
        '"${OPENAI_BASE_URL:-https://api.openai.com/v1}/chat/completions"',
        '-H "Authorization: Bearer $OPENAI_API_KEY"',
      ]
  const body = requestJson(asked).replaceAll("'", `'\\''`)
  return [
    `curl ${target[0]}`,
    `  ${target[1]}`,
    `  -H "Content-Type: application/json"`,
    `  -d '${body}'`,
  ].join(' \\\n')
}
