/** Files that are recorded within a text: as `data:` URIs, or as base64 with their media type. */
import { entriesOf, type JsonEntry, type JsonValue } from './json-outline'

export type MediaKind = 'image' | 'audio' | 'video'

/** The types that browsers show without running anything of them. SVG and HTML are not among them. */
const SHOWN: Record<string, MediaKind> = {
  'image/png': 'image',
  'image/jpeg': 'image',
  'image/jpg': 'image',
  'image/gif': 'image',
  'image/webp': 'image',
  'image/avif': 'image',
  'audio/mpeg': 'audio',
  'audio/mp3': 'audio',
  'audio/wav': 'audio',
  'audio/x-wav': 'audio',
  'audio/wave': 'audio',
  'audio/ogg': 'audio',
  'video/mp4': 'video',
  'video/webm': 'video',
}

/** A larger file is only downloaded. */
const LARGEST_SHOWN = 5_000_000

const DATA_URI = /^data:([a-z]+\/[\w.+-]+)((?:;[\w-]+=[^;,]*)*)(;base64)?,/i

export interface DataUri {
  mediaType: string
  /** The size of the file in bytes. */
  bytes: number
  /** How it is shown; null for a type or a size that is only downloaded. */
  kind: MediaKind | null
}

/** Returns the type and size of the file in a `data:` URI; null if the text is not one. */
export function readDataUri(text: string): DataUri | null {
  const found = DATA_URI.exec(text)
  if (!found) return null
  const mediaType = found[1]!.toLowerCase()
  const length = text.length - found[0].length
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0
  const bytes = found[3] ? Math.max(0, Math.floor((length * 3) / 4) - padding) : length
  const kind = bytes <= LARGEST_SHOWN ? (SHOWN[mediaType] ?? null) : null
  return { mediaType, bytes, kind }
}

/** Names of fields that hold a file's type, and of those that hold its base64. */
const TYPE_FIELDS = /^"(media_?type|mime_?type|format)"$/i
const DATA_FIELDS = /^"(data|content|blob|b64_json)"$/i
const SHORTEST_DATA = 32

/**
 * Returns the entry of a JSON object that holds a file as base64, and the file as a `data:` URI: the
 * blob parts of OpenTelemetry, MCP, Anthropic, Google and OpenAI. Null for other objects.
 */
export function blobIn(text: string, container: JsonValue): { start: number; uri: string } | null {
  if (container.kind !== 'object' || container.count > 12) return null
  const entries = entriesOf(text, container, container.count)
  const type = stringOf(text, entries, TYPE_FIELDS)
  const data = stringOf(text, entries, DATA_FIELDS)
  if (!type || !data || data.text.length < SHORTEST_DATA) return null
  const mediaType = /^(wav|mp3)$/.test(type.text) ? `audio/${type.text}` : type.text
  if (!/^[a-z]+\/[\w.+-]+$/i.test(mediaType) || !/^[\w+/=-]+$/.test(data.text)) return null
  return { start: data.start, uri: `data:${mediaType};base64,${data.text}` }
}

function stringOf(text: string, entries: readonly JsonEntry[], field: RegExp) {
  const value = entries.find(({ key }) => key !== null && field.test(key))?.value
  if (value?.kind !== 'string') return null
  return { start: value.start, text: text.slice(value.start + 1, value.end - 1) }
}
