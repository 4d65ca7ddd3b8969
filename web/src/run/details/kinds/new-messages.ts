/** The messages of a model call that the agent's previous call did not contain. */
import type { Message } from '../../../api/shapes'

export interface Told {
  system: Message[]
  /** Messages that the call before had, too, and its answer. */
  earlier: Message[]
  fresh: Message[]
}

/**
 * Divides the messages of a call.
 *
 * @param before The messages of the agent's call before; null for its first call. If they are not
 *   the beginning of these, as after a history was shortened, all that differ are new.
 */
export function divideMessages(
  messages: readonly Message[],
  before: readonly Message[] | null,
): Told {
  const isSystem = ({ role }: Message) => role === 'system'
  const system = messages.filter(isSystem)
  const said = messages.filter((message) => !isSystem(message))
  if (before === null) return { system, earlier: [], fresh: said }
  const known = before.filter((message) => !isSystem(message)).map(textOf)
  let same = 0
  while (same < known.length && same < said.length && textOf(said[same]!) === known[same]) same += 1
  // The answer of the call before is shown there.
  while (same < said.length && isAnswer(said[same]!)) same += 1
  return { system, earlier: said.slice(0, same), fresh: said.slice(same) }
}

function isAnswer({ role }: Message): boolean {
  return role === 'assistant'
}

function textOf(message: Message): string {
  return JSON.stringify(message)
}

/** The call of a tool whose result a message brings; null if it is unknown. */
export function callOf(messages: readonly Message[], callId: string | null) {
  if (!callId) return null
  for (const { parts } of messages) {
    for (const part of parts) if (part.type === 'toolCall' && part.id === callId) return part
  }
  return null
}
