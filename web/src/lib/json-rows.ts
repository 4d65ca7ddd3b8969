/** The lines in which a JSON text is shown, as far as it is open. */
import { blobIn, readDataUri } from './data-uri'
import {
  entriesOf,
  isContainer,
  type JsonEntry,
  type JsonHit,
  type JsonValue,
} from './json-outline'

export type JsonRow =
  /**
   * A value; an open object or array continues in the rows below. `file` is the file that it holds
   * as a `data:` URI.
   */
  | { kind: 'value'; depth: number; entry: JsonEntry; open: boolean; file: string | null }
  /** The bracket that ends an object or array. */
  | { kind: 'end'; depth: number; value: JsonValue }
  /** Entries that are left out. */
  | { kind: 'before' | 'after'; depth: number; value: JsonValue; left: number }

export interface JsonOpening {
  /** Starts of the open objects and arrays. */
  open: ReadonlySet<number>
  /** Which entries of each are shown, where not the first. */
  parts: ReadonlyMap<number, Part>
}

export interface Part {
  from: number
  to: number
}

/** How many entries of an object or array are shown at first. */
const FIRST_ENTRIES = 100
const MORE_ENTRIES = 1_000
const FITTING_ROWS = 60
/** In a longer text each level costs more than it is worth before anybody asks. */
const LONGEST_OPENED = 500_000

/** Opens level by level as many objects and arrays as make a page; always the outermost. */
export function openAtFirst(text: string, root: JsonValue): JsonOpening {
  const open = new Set([root.start])
  let rows = root.count
  let level = [root]
  while (level.length > 0 && text.length <= LONGEST_OPENED) {
    const next: JsonValue[] = []
    for (const container of level) {
      for (const { value } of entriesOf(text, container, FIRST_ENTRIES)) {
        if (!isContainer(value) || value.count === 0 || rows + value.count > FITTING_ROWS) continue
        rows += value.count + 1
        open.add(value.start)
        next.push(value)
      }
    }
    level = next
  }
  return { open, parts: new Map() }
}

/** Opens everything around a hit; in a long array only the part that contains the hit. */
export function openToHit(hit: JsonHit, before: JsonOpening): JsonOpening {
  const open = new Set(before.open)
  const parts = new Map(before.parts)
  for (const { start, index } of hit.path) {
    open.add(start)
    const { from, to } = partOf(before, start)
    const half = FIRST_ENTRIES / 2
    if (index < from || index >= to) {
      parts.set(start, { from: Math.max(0, index - half), to: index + half })
    }
  }
  return { open, parts }
}

/** Shows more entries of one object or array, before or after those that are shown. */
export function showMore(row: JsonRow & { kind: 'before' | 'after' }, shown: JsonOpening) {
  const { from, to } = partOf(shown, row.value.start)
  const part =
    row.kind === 'before'
      ? { from: Math.max(0, from - MORE_ENTRIES), to }
      : { from, to: to + MORE_ENTRIES }
  return { open: shown.open, parts: new Map(shown.parts).set(row.value.start, part) }
}

function partOf({ parts }: JsonOpening, start: number): Part {
  return parts.get(start) ?? { from: 0, to: FIRST_ENTRIES }
}

export function jsonRows(text: string, root: JsonValue, opening: JsonOpening): JsonRow[] {
  const rows: JsonRow[] = []
  type Task = { depth: number; entry: JsonEntry; blob: string | null } | JsonRow
  const waiting: Task[] = [{ depth: 0, entry: { key: null, value: root }, blob: null }]
  for (let task = waiting.pop(); task; task = waiting.pop()) {
    if ('kind' in task) {
      rows.push(task)
      continue
    }
    const { depth, entry, blob } = task
    const { value } = entry
    const isOpen = isContainer(value) && value.count > 0 && opening.open.has(value.start)
    rows.push({ kind: 'value', depth, entry, open: isOpen, file: blob ?? fileIn(text, value) })
    if (!isOpen) continue
    const { from, to } = partOf(opening, value.start)
    const below = depth + 1
    waiting.push({ kind: 'end', depth, value })
    if (value.count > to) {
      waiting.push({ kind: 'after', depth: below, value, left: value.count - to })
    }
    const file = blobIn(text, value)
    for (const each of entriesOf(text, value, to, from).reverse()) {
      const isFile = file?.start === each.value.start
      waiting.push({ depth: below, entry: each, blob: isFile ? file.uri : null })
    }
    if (from > 0) waiting.push({ kind: 'before', depth: below, value, left: from })
  }
  return rows
}

function fileIn(text: string, value: JsonValue): string | null {
  if (value.kind !== 'string' || !text.startsWith('data:', value.start + 1)) return null
  const uri = text.slice(value.start + 1, value.end - 1).replaceAll('\\/', '/')
  return readDataUri(uri) ? uri : null
}

/** The path of the value that each row shows, such as `$.items[2].name`; empty for other rows. */
export function jsonPaths(rows: readonly JsonRow[]): string[] {
  const parts: string[] = []
  const indexes: number[] = []
  return rows.map((row) => {
    if (row.kind === 'before') indexes[row.depth] = row.left
    if (row.kind !== 'value') return ''
    const { depth, entry } = row
    if (depth === 0) parts[0] = '$'
    else if (entry.key === null) {
      const index = indexes[depth] ?? 0
      indexes[depth] = index + 1
      parts[depth] = `[${index}]`
    } else parts[depth] = memberOf(entry.key)
    parts.length = depth + 1
    indexes.length = Math.min(indexes.length, depth + 1)
    return parts.join('')
  })
}

function memberOf(key: string): string {
  const name = /^"([A-Za-z_]\w*)"$/.exec(key)?.[1]
  return name ? `.${name}` : `[${key}]`
}
