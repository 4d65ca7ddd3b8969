/** Finding text in a run: in names, arguments, results, thoughts and errors. */
import type { TreeNode } from '../api/shapes'
import { visibleText } from './payload-text'
import { isRecord, recordId, type Row } from './rows'

/**
 * Text as it is compared: without case, accents and the width of letters, each run of spaces as one.
 * JSON's `\u00e9` is the letter that it stands for.
 */
export function folded(text: string): string {
  return isSimple(text) ? text.toLowerCase().replace(/\s+/g, ' ') : foldWithPlaces(text).text
}

/** What most payloads are, and what can be folded fast. */
function isSimple(text: string): boolean {
  return /^[\x00-\x7f]*$/.test(text) && !text.includes('\\u')
}

interface Folded {
  text: string
  /** For each character of the folded text, where in the original it comes from; and its end. */
  places: number[]
}

const PIECE = /\\u[0-9a-f]{4}|\s+|[^]/giu

function foldWithPlaces(text: string): Folded {
  let out = ''
  const places: number[] = []
  for (const found of text.matchAll(PIECE)) {
    const plain = foldedPiece(found[0])
    for (let at = 0; at < plain.length; at += 1) places.push(found.index)
    out += plain
  }
  places.push(text.length)
  return { text: out, places }
}

function foldedPiece(piece: string): string {
  if (/^\s/.test(piece)) return ' '
  const character = piece.length === 6 ? String.fromCharCode(parseInt(piece.slice(2), 16)) : piece
  const code = character.charCodeAt(0)
  if (code < 0x80) return character.toLowerCase()
  return character
    .normalize('NFKD')
    .toLowerCase()
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .replace(/ς/g, 'σ')
}

/** What is looked for, folded; empty where there is nothing to look for. */
export function foldedQuery(query: string): string {
  return folded(query.trim())
}

/** A part of a text; `hit` where it is what was looked for. */
export interface Part {
  text: string
  hit: boolean
}

/** Divides a text into what was looked for and what lies between, in order. */
export function partsOf(text: string, query: string, most = 1_000): Part[] {
  if (query === '' || text === '') return [{ text, hit: false }]
  const simple = isSimple(text) && !query.includes(' ')
  const { text: plain, places } = simple
    ? { text: text.toLowerCase(), places: null }
    : foldWithPlaces(text)
  const parts: Part[] = []
  let shown = 0
  let left = most
  for (let at = plain.indexOf(query); at >= 0 && left > 0;) {
    const start = places ? places[at]! : at
    const end = places ? endOf(places, at + query.length - 1) : at + query.length
    if (start >= shown) {
      if (start > shown) parts.push({ text: text.slice(shown, start), hit: false })
      parts.push({ text: text.slice(start, end), hit: true })
      shown = end
      left -= 1
    }
    at = plain.indexOf(query, at + query.length)
  }
  if (shown < text.length) parts.push({ text: text.slice(shown), hit: false })
  return parts
}

/**
 * Where in the original a hit ends, of which `last` is the last folded character. A letter is a hit
 * whole, with the accents after it, even where what it folds to is longer.
 */
function endOf(places: readonly number[], last: number): number {
  let next = last + 1
  while (next < places.length - 1 && places[next] === places[last]) next += 1
  return places[next]!
}

/** The texts of a record that are searched, what a reader sees first in front. */
export function searchedTexts(record: TreeNode): (string | null)[] {
  const error = [record.error?.type ?? null, record.error?.message ?? null, record.reason]
  switch (record.kind) {
    case 'plan':
      return [record.title, record.userRequest, record.summary, record.agentName, ...error]
    case 'step':
      return [record.agentName, record.request, record.result, ...error]
    case 'thinkAct':
      return [record.thought, record.model, record.requestedModel, ...error]
    case 'toolCall':
      return [
        record.name,
        record.arguments,
        record.result,
        record.effectiveArguments,
        record.stateChanges,
        record.lateResult,
        ...error,
      ]
  }
}

/** Folding thousands of texts takes longer than looking through them; a changed record is another. */
const haystacks = new WeakMap<TreeNode, string>()

function haystackOf(record: TreeNode): string {
  let known = haystacks.get(record)
  if (known === undefined) {
    // A line break is in no folded text, so nothing is found across two texts.
    known = searchedTexts(record)
      .map((text) => folded(text ?? ''))
      .join('\n')
    haystacks.set(record, known)
  }
  return known
}

/** Whether a row holds what is looked for, or has it as its whole id. */
export function isHit(row: Row, query: string): boolean {
  if (query === '' || !isRecord(row)) return false
  return haystackOf(row.record).includes(query) || recordId(row.record).toLowerCase() === query
}

/** Whether more was recorded than a search in the tree can see. */
export function isCut(record: TreeNode): boolean {
  switch (record.kind) {
    case 'plan':
      return record.userRequestTruncated || record.summaryTruncated
    case 'step':
      return record.requestTruncated || record.resultTruncated
    case 'thinkAct':
      return record.thoughtTruncated
    case 'toolCall':
      return (
        record.argumentsTruncated ||
        record.resultTruncated ||
        record.effectiveArgumentsTruncated ||
        record.stateChangesTruncated ||
        record.lateResultTruncated
      )
  }
}

const BEFORE = 10
const AFTER = 120

/**
 * The surroundings of the first hit in a record's texts, on one line; null where what the row shows
 * anyway has it, or nothing does.
 */
export function snippet(record: TreeNode, query: string, shown: readonly string[]): string | null {
  if (query === '' || shown.some((text) => folded(text).includes(query))) return null
  for (const text of searchedTexts(record)) {
    if (!text || !folded(text).includes(query)) continue
    const { text: plain, places } = foldWithPlaces(text)
    const start = places[plain.indexOf(query)]!
    const from = Math.max(0, start - BEFORE)
    const around = text.slice(from, start + query.length + AFTER).replace(/\s+/g, ' ')
    return (from > 0 ? '…' : '') + visibleText(around)
  }
  return null
}
