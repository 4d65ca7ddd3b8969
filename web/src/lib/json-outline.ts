/**
 * The text of a JSON object or array as a tree, read as it is opened. It works on the text:
 * parsing would change numbers that JavaScript cannot hold and repeated keys, and a text that is nested
 * deeply or of megabytes would have to be walked whole.
 */
import { folded, needlesOf } from './text-search'

export interface JsonValue {
  kind: 'object' | 'array' | 'string' | 'other'
  /** Its position in the text; `start` identifies the value. */
  start: number
  end: number
  /** How many entries an object or array has. */
  count: number
}

export interface JsonEntry {
  /** An object's key as it was written, with its quotes; null in an array. */
  key: string | null
  value: JsonValue
}

/** The object or array that a text contains, or null. */
export function readJson(text: string): JsonValue | null {
  if (!/^\s*[[{]/.test(text)) return null
  try {
    JSON.parse(text)
  } catch {
    return null
  }
  return valueAt(text, skipSpace(text, 0))
}

export function isContainer(value: JsonValue): boolean {
  return value.kind === 'object' || value.kind === 'array'
}

/** The entries of an object or array up to the one with the number `to`. */
export function entriesOf(text: string, container: JsonValue, to: number, from = 0): JsonEntry[] {
  const entries: JsonEntry[] = []
  let at = skipSpace(text, container.start + 1)
  for (let index = 0; index < to && at < container.end - 1; index += 1) {
    let key: string | null = null
    if (container.kind === 'object') {
      const end = endOfString(text, at)
      key = text.slice(at, end)
      at = skipSpace(text, skipSpace(text, end) + 1)
    }
    const value = valueAt(text, at)
    if (index >= from) entries.push({ key, value })
    at = skipSpace(text, skipSpace(text, value.end) + 1)
  }
  return entries
}

/** A value's text as it is read: a string without its escapes, in quotes. */
export function shownValue(text: string): string {
  return text.startsWith('"') && text.includes('\\') ? `"${JSON.parse(text) as string}"` : text
}

export interface JsonHit {
  /** The value that is a hit, or whose key is. */
  start: number
  /** The objects and arrays around it, from the outermost in, and which entry leads to it. */
  path: { start: number; index: number }[]
}

/** The positions of keys and values that match a query, in order. */
export function findInJson(text: string, root: JsonValue, query: string, most: number): JsonHit[] {
  const hits: JsonHit[] = []
  if (query === '') return hits
  const needles = [query, ...needlesOf(query)]
  const path: { start: number; index: number }[] = []
  let hitKey = false
  let at = root.start
  while (at < root.end && hits.length < most) {
    const character = text[at]!
    if (character === ',') path.at(-1)!.index += 1
    if (character === ']' || character === '}') path.pop()
    if (character === ',' || character === ']' || character === '}' || character === ':') {
      at += 1
      continue
    }
    if (isSpace(text.charCodeAt(at))) {
      at = skipSpace(text, at)
      continue
    }
    if (character === '[' || character === '{') {
      if (hitKey) hits.push({ start: at, path: path.map((each) => ({ ...each })) })
      hitKey = false
      path.push({ start: at, index: 0 })
      at += 1
      continue
    }
    const end = endOfScalar(text, at)
    const isKey = character === '"' && text[skipSpace(text, end)] === ':'
    const value = folded(shownValue(text.slice(at, end)))
    const isHit = needles.some((needle) => value.includes(needle))
    if (isKey) {
      hitKey = isHit
    } else {
      if (isHit || hitKey) hits.push({ start: at, path: path.map((each) => ({ ...each })) })
      hitKey = false
    }
    at = end
  }
  return hits
}

/** Reads one value; the content of an object or array is counted, not kept. */
function valueAt(text: string, start: number): JsonValue {
  const character = text[start]
  if (character !== '{' && character !== '[') {
    const kind = character === '"' ? 'string' : 'other'
    return { kind, start, end: endOfScalar(text, start), count: 0 }
  }
  let depth = 1
  let commas = 0
  let isEmpty = true
  let at = start + 1
  while (depth > 0) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) {
      isEmpty = false
      at = endOfString(text, at)
      continue
    }
    if (code === OPEN_OBJECT || code === OPEN_ARRAY) depth += 1
    else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) depth -= 1
    else if (code === COMMA && depth === 1) commas += 1
    if (depth > 0 && !isSpace(code)) isEmpty = false
    at += 1
  }
  const kind = character === '{' ? 'object' : 'array'
  return { kind, start, end: at, count: isEmpty ? 0 : commas + 1 }
}

const QUOTE = 0x22
const COMMA = 0x2c
const OPEN_ARRAY = 0x5b
const CLOSE_ARRAY = 0x5d
const OPEN_OBJECT = 0x7b
const CLOSE_OBJECT = 0x7d
const BACKSLASH = 0x5c

function isSpace(code: number): boolean {
  return code === 0x20 || (code >= 0x09 && code <= 0x0d)
}

function skipSpace(text: string, start: number): number {
  let at = start
  while (isSpace(text.charCodeAt(at))) at += 1
  return at
}

function endOfScalar(text: string, start: number): number {
  if (text.charCodeAt(start) === QUOTE) return endOfString(text, start)
  let at = start
  while (at < text.length && !/[\s,\]}]/.test(text[at]!)) at += 1
  return at
}

function endOfString(text: string, start: number): number {
  let at = text.indexOf('"', start + 1)
  while (isEscaped(text, at)) at = text.indexOf('"', at + 1)
  return at + 1
}

function isEscaped(text: string, quote: number): boolean {
  let at = quote - 1
  while (text.charCodeAt(at) === BACKSLASH) at -= 1
  return (quote - at) % 2 === 0
}
