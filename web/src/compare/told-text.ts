/** What a round was told, as one text: the messages that the round before was not sent. */
import type { Message, MessagePart } from '../api/shapes'

/**
 * The text of the messages that are new, without answers of the model, as the API compares them.
 *
 * @param before The messages of the round before; null for the first round.
 */
export function toldText(
  messages: readonly Message[] | null,
  before: readonly Message[] | null,
): string | null {
  if (messages === null) return null
  const known = (before ?? []).map(textOf)
  let same = 0
  while (same < known.length && messages[same] && textOf(messages[same]!) === known[same]) same += 1
  const told = messages.slice(same).filter(({ role }) => role !== 'assistant')
  return told.map(textOf).join('\n\n')
}

function textOf({ role, name, parts }: Message): string {
  return `${name ? `${role} ${name}` : role}:\n${parts.map(partText).join('\n')}`
}

/** Without the ids of calls, which providers choose anew. */
function partText(part: MessagePart): string {
  switch (part.type) {
    case 'toolCall':
      return `${part.name ?? ''} ${part.arguments}`
    case 'file':
      return [part.mediaType, part.name, part.uri].filter(Boolean).join(' ')
    case 'other':
      return part.json
    default:
      return part.text
  }
}
