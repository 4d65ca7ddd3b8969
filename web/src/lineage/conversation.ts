/** A think-act's messages, which are kept as the text of a JSON array, as a conversation. */

export interface Message {
  role: string
  /** What it says; empty where it only carries tool calls. */
  text: string
  /** Everything else that it holds, as the text of a JSON object; empty where there is nothing. */
  rest: string
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
  return read.every((message) => message !== null) ? read : null
}

function readMessage(value: unknown): Message | null {
  if (typeof value !== 'object' || value === null) return null
  const { role, content, ...others } = value as Record<string, unknown>
  if (typeof role !== 'string') return null
  const rest = Object.fromEntries(Object.entries(others).filter(([, each]) => !isEmpty(each)))
  if (content != null && typeof content !== 'string') rest['content'] = content
  return {
    role,
    text: typeof content === 'string' ? content : '',
    rest: Object.keys(rest).length > 0 ? JSON.stringify(rest) : '',
  }
}

function isEmpty(value: unknown): boolean {
  return value === null || (Array.isArray(value) && value.length === 0)
}
