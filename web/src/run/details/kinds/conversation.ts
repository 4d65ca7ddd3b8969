/**
 * A think-act's messages, which are kept as the text of a JSON array, as a conversation: in the forms
 * of OpenAI's and Anthropic's APIs and of OpenTelemetry's and OpenInference's attributes.
 */

export interface Part {
  /** What it is: said, thought, a call of a tool, what a tool answered, or anything else as JSON. */
  kind: 'text' | 'thought' | 'call' | 'answer' | 'other'
  text: string
  /** The tool's name and the provider's id of its call, as far as they are told. */
  tool: string
  id: string
}

export interface Message {
  role: string
  parts: Part[]
}

type Fields = Record<string, unknown>

/** Of why a message ended, what its parts say anyway. */
const USUAL_ENDS = ['stop', 'tool_call', 'tool_calls']

/** What the parts of a message are called by those who write them. */
const KINDS: Record<string, Part['kind']> = {
  text: 'text',
  input_text: 'text',
  output_text: 'text',
  reasoning: 'thought',
  thinking: 'thought',
  tool_call: 'call',
  tool_use: 'call',
  function: 'call',
  tool_call_response: 'answer',
  tool_result: 'answer',
}

/** Where a part of a kind has what it says. */
const SAID: Record<Part['kind'], readonly string[]> = {
  text: ['text', 'content'],
  thought: ['content', 'thinking', 'text'],
  call: ['arguments', 'input'],
  answer: ['response', 'result', 'content'],
  other: [],
}

/** Returns the messages, or null where the text is not an array of objects with a role. */
export function readConversation(messages: string): Message[] | null {
  let parsed: unknown
  try {
    parsed = JSON.parse(messages)
  } catch {
    return null
  }
  if (!Array.isArray(parsed)) return null
  const read = parsed.map(readMessage)
  if (!read.every((message) => message !== null)) return null
  nameAnswers(read)
  return read
}

function readMessage(value: unknown): Message | null {
  if (!isFields(value) || typeof value['role'] !== 'string') return null
  const { role, content, parts, tool_calls: calls, ...others } = value
  if (USUAL_ENDS.includes(textOf(others['finish_reason']))) delete others['finish_reason']
  if (role === 'tool' && typeof content === 'string') {
    const { tool_call_id: id, name, ...left } = others
    const answer = part('answer', content, textOf(name), textOf(id))
    return { role, parts: [answer, ...leftOver(left)] }
  }
  const read = [...listOf(content), ...listOf(parts)].flatMap(readPart)
  const called = listOf(calls).flatMap((call) =>
    readPart(isFields(call) ? { type: 'tool_call', ...call, ...functionOf(call) } : call),
  )
  return { role, parts: [...read, ...called, ...leftOver(others)] }
}

function readPart(value: unknown): Part[] {
  if (typeof value === 'string') return value === '' ? [] : [part('text', value)]
  if (!isFields(value)) return leftOver({ content: value })
  const { type, id, tool_use_id: answered, name, ...others } = value
  const kind = KINDS[textOf(type)]
  const said = kind && SAID[kind].find((key) => others[key] != null)
  if (!kind || !said) return leftOver(value)
  const { [said]: what, ...left } = others
  const text = typeof what === 'string' ? what : JSON.stringify(what)
  return [part(kind, text, textOf(name), textOf(id) || textOf(answered)), ...leftOver(left)]
}

/** OpenAI puts the name and the arguments of a call one deeper. */
function functionOf({ function: called, ...call }: Fields): Fields {
  return isFields(called) ? { ...call, function: undefined, ...called } : {}
}

/** What was not understood is shown as it is; what says nothing is not. */
function leftOver(fields: Fields): Part[] {
  const rest = Object.fromEntries(Object.entries(fields).filter(([, each]) => !isEmpty(each)))
  return Object.keys(rest).length > 0 ? [part('other', JSON.stringify(rest))] : []
}

/** An answer that names its call alone is given the name of the latest tool that was called so. */
function nameAnswers(messages: readonly Message[]): void {
  const names = new Map<string, string>()
  for (const each of messages.flatMap((message) => message.parts)) {
    if (each.id === '') continue
    if (each.kind === 'call') names.set(each.id, each.tool)
    else if (each.kind === 'answer') each.tool ||= names.get(each.id) ?? ''
  }
}

function part(kind: Part['kind'], text: string, tool = '', id = ''): Part {
  return { kind, text, tool, id }
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function listOf(value: unknown): unknown[] {
  if (value == null) return []
  return Array.isArray(value) ? value : [value]
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function isEmpty(value: unknown): boolean {
  return value == null || (Array.isArray(value) && value.length === 0)
}
