/** The new input messages of a round as one text: those that the previous round did not have. */
import type { Message, MessagePart } from '../api/shapes'
import { readJson } from '../lib/json-outline'
import { laidOut, LONGEST } from './text-diff'

/**
 * The text of the messages that are new, without answers of the model, as the API compares them.
 *
 * @param before The messages of the previous round; null for the first round.
 */
export function newMessagesText(
  messages: readonly Message[] | null,
  before: readonly Message[] | null,
): string | null {
  if (messages === null) return null
  const known = (before ?? []).map(textOf)
  let same = 0
  while (same < known.length && messages[same] && textOf(messages[same]!) === known[same]) same += 1
  const added = messages.slice(same).filter(({ role }) => role !== 'assistant')
  return added.map(textOf).join('\n\n')
}

function textOf({ role, name, parts }: Message): string {
  return `${name ? `${role} ${name}` : role}:\n${parts.map(partText).join('\n')}`
}

/** Without the ids of calls: providers choose new ones in each run. */
function partText(part: MessagePart): string {
  switch (part.type) {
    case 'toolCall':
      return `${part.name ?? ''} ${asValue(part.arguments)}`
    case 'file':
      return [part.mediaType, part.name, part.uri].filter(Boolean).join(' ')
    case 'other':
      return part.json
    default:
      return asValue(part.text)
  }
}

/** JSON in one form, so that neither white space nor the order of keys is a difference. */
function asValue(text: string): string {
  const root = text.length > LONGEST ? null : readJson(text)
  return root ? laidOut(text, root) : text
}
