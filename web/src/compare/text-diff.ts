/**
 * In what two texts differ, line by line, and within lines that changed word by word. JSON is
 * compared as a value, as the API does it (`tracer/lineage/diff.py`).
 */
import { diffArrays, diffLines, type Change } from 'diff'
import { entriesOf, isContainer, readJson, type JsonValue } from '../lib/json-outline'

export interface DiffPart {
  kind: 'same' | 'removed' | 'added'
  text: string
}

/** Longer texts are not compared: the comparison would block the page. */
export const LONGEST = 200_000
/** Texts that differ at more positions than this are taken as wholly different there. */
const MOST_LINES = { maxEditLength: 1_000 }
const MOST_WORDS = { maxEditLength: 400 }
/** Two texts with fewer common words are easier to read one after the other. */
const LEAST_ALIKE = 0.3

/** The parts of two texts in order, or null if they are too long to compare. */
export function diffTexts(left: string, right: string): DiffPart[] | null {
  if (Math.max(left.length, right.length) > LONGEST) return null
  const [leftRoot, rightRoot] = [readJson(left), readJson(right)]
  const isJson = leftRoot !== null && rightRoot !== null
  const one = isJson ? laidOut(left, leftRoot) : left
  const other = isJson ? laidOut(right, rightRoot) : right
  const lines = diffLines(one, other, MOST_LINES)
  if (!lines) return joined(apart(one, other))
  const parts: DiffPart[] = []
  for (let at = 0; at < lines.length; at += 1) {
    const [change, next] = [lines[at]!, lines[at + 1]]
    if (change.removed && next?.added) {
      parts.push(...diffWords(change.value, next.value))
      at += 1
    } else parts.push(partOf(change))
  }
  return joined(parts)
}

/** Words, spaces and single signs; a letter where a script has no spaces between words. */
const UNSPACED = '[\\p{sc=Han}\\p{sc=Hiragana}\\p{sc=Katakana}\\p{sc=Thai}\\p{sc=Khmer}\\p{sc=Lao}]'
const TOKENS = new RegExp(`(?:(?!${UNSPACED})[\\p{L}\\p{M}\\p{N}_])+|\\s+|[^]\\p{M}*`, 'gu')

function diffWords(removed: string, added: string): DiffPart[] {
  const tokens = [removed, added].map((text) => text.match(TOKENS) ?? [])
  const found = diffArrays(tokens[0]!, tokens[1]!, MOST_WORDS)?.map((each) => ({
    ...each,
    value: each.value.join(''),
  }))
  const alike = found?.reduce((sum, each) => sum + (isSame(each) ? countWords(each.value) : 0), 0)
  const least = LEAST_ALIKE * Math.min(countWords(removed), countWords(added))
  if (!found || alike! < least) return apart(removed, added)
  const parts: DiffPart[] = []
  // Words that changed one after the other are one change, the space between them in it.
  let [gone, come] = ['', '']
  found.forEach((change, index) => {
    const { value } = change
    const isGap = /^ +$/.test(value) && gone + come !== '' && index < found.length - 1
    if (!isSame(change)) {
      if (change.removed) gone += value
      else come += value
    } else if (isGap) {
      gone += value
      come += value
    } else {
      parts.push(...apart(gone, come), partOf(change))
      gone = come = ''
    }
  })
  return [...parts, ...apart(gone, come)]
}

const isSame = ({ added, removed }: Omit<Change, 'value'>) => !added && !removed

function partOf(change: Change): DiffPart {
  return { kind: change.removed ? 'removed' : change.added ? 'added' : 'same', text: change.value }
}

function apart(removed: string, added: string): DiffPart[] {
  return [
    { kind: 'removed', text: removed },
    { kind: 'added', text: added },
  ]
}

/** Without empty parts, and with equal neighbours joined. */
function joined(parts: readonly DiffPart[]): DiffPart[] {
  const found: DiffPart[] = []
  for (const part of parts) {
    const last = found.at(-1)
    if (part.text === '') continue
    if (last?.kind === part.kind) last.text += part.text
    else found.push({ ...part })
  }
  return found
}

function linesOf(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? []
}

function countWords(text: string): number {
  return text.match(/\p{Script=Han}|[\p{L}\p{N}]+/gu)?.length ?? 0
}

/** JSON that nests deeper is compared as it was written. */
const DEEPEST = 60

/** A line for each entry, keys in order, every number as it was written. */
export function laidOut(text: string, value: JsonValue, depth = 0): string {
  const written = text.slice(value.start, value.end)
  if (depth > DEEPEST) return written
  if (value.kind === 'string') return JSON.stringify(JSON.parse(written))
  if (!isContainer(value)) return written
  const entries = entriesOf(text, value, value.count).map((entry) => ({
    key: entry.key === null ? '' : JSON.stringify(JSON.parse(entry.key)),
    value: laidOut(text, entry.value, depth + 1),
  }))
  const [open, close] = value.kind === 'object' ? '{}' : '[]'
  if (entries.length === 0) return `${open}${close}`
  if (value.kind === 'object')
    entries.sort((one, other) => (one.key < other.key ? -1 : Number(one.key > other.key)))
  const indent = '  '.repeat(depth + 1)
  const lines = entries.map((each) => indent + (each.key && `${each.key}: `) + each.value)
  return `${open}\n${lines.join(',\n')}\n${'  '.repeat(depth)}${close}`
}

export interface ShownPart {
  kind: DiffPart['kind'] | 'folded'
  text: string
  /** How many lines a folded part has; 0 of every other. */
  lines: number
  /** Whether it begins and ends with a line. */
  isWhole: boolean
}

/** Around a difference, so many lines that are the same are shown. */
const AROUND = 3
/** Fewer lines are not worth folding. */
const LEAST_FOLDED = 4

/** The parts; a long common part is reduced to the lines near a difference. */
export function shownParts(parts: readonly DiffPart[]): ShownPart[] {
  return parts.flatMap((part, index): ShownPart[] => {
    const { kind, text } = part
    if (kind !== 'same') return [{ ...part, lines: 0, isWhole: isWhole(parts, index) }]
    const lines = linesOf(text)
    const start = index === 0 ? 0 : AROUND
    const end = lines.length - (index === parts.length - 1 ? 0 : AROUND)
    const piece = (from: number, to?: number) => lines.slice(from, to).join('')
    const alike = { kind, lines: 0, isWhole: false }
    if (end - start < LEAST_FOLDED) return [{ ...alike, text }]
    return [
      { ...alike, text: piece(0, start) },
      { kind: 'folded' as const, text: piece(start, end), lines: end - start, isWhole: true },
      { ...alike, text: piece(end) },
    ].filter((each) => each.text !== '')
  })
}

function isWhole(parts: readonly DiffPart[], index: number): boolean {
  const isCommon = (part: DiffPart) => part.kind === 'same'
  const before = parts.slice(Math.max(0, index - 2), index).findLast(isCommon)
  const after = parts.slice(index + 1, index + 3).find(isCommon)
  const begins = before === undefined || before.text.endsWith('\n')
  return begins && (after === undefined || parts[index]!.text.endsWith('\n'))
}
