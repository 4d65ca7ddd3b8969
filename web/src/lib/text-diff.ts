/** In what two texts differ, line by line, and within lines that changed word by word. */
import { commonItems } from './common-items'
import { readJson } from './json-outline'

export interface DiffPart {
  kind: 'same' | 'removed' | 'added'
  text: string
}

/** Longer texts are not compared: the comparison would block the page. */
const LONGEST = 200_000
/** Texts that differ in more places than this are taken as wholly different there. */
const MOST_LINES = 1_000
const MOST_WORDS = 400
/** Two texts with fewer common words are easier to read one after the other. */
const LEAST_ALIKE = 0.3

/** The parts of two texts in order, or null if they are too long to compare. */
export function diffTexts(left: string, right: string): DiffPart[] | null {
  if (Math.max(left.length, right.length) > LONGEST) return null
  const isJson = [left, right].every((text) => readJson(text) !== null)
  const [one, other] = isJson ? [laidOutJson(left), laidOutJson(right)] : [left, right]
  const parts: DiffPart[] = []
  for (const [removed, added, same] of hunks(linesOf(one), linesOf(other), MOST_LINES)) {
    parts.push(...diffWords(removed, added), { kind: 'same', text: same })
  }
  return joined(parts)
}

function diffWords(removed: string, added: string): DiffPart[] {
  const whole: DiffPart[] = [
    { kind: 'removed', text: removed },
    { kind: 'added', text: added },
  ]
  if (removed === '' || added === '') return whole
  const found = [...hunks(wordsOf(removed), wordsOf(added), MOST_WORDS)]
  const alike = found.reduce((sum, [, , same]) => sum + countWords(same), 0)
  if (alike < LEAST_ALIKE * Math.min(countWords(removed), countWords(added))) return whole
  return withoutGaps(found).flatMap(([gone, come, same]): DiffPart[] => [
    { kind: 'removed', text: gone },
    { kind: 'added', text: come },
    { kind: 'same', text: same },
  ])
}

type Hunk = [removed: string, added: string, same: string]

/** Words that changed one after the other are one change, the space between them in it. */
function withoutGaps(found: readonly Hunk[]): Hunk[] {
  const merged: Hunk[] = []
  for (const [gone, come, same] of found) {
    const last = merged.at(-1)
    if (last && /^ +$/.test(last[2])) {
      merged[merged.length - 1] = [last[0] + last[2] + gone, last[1] + last[2] + come, same]
    } else merged.push([gone, come, same])
  }
  return merged
}

/** Removed parts, added parts, and the common part that follows; repeatedly. */
function* hunks(left: readonly string[], right: readonly string[], most: number): Generator<Hunk> {
  let [from, to] = [0, 0]
  for (const { left: one, right: other, length } of commonItems(left, right, most)) {
    const text = (items: readonly string[], start: number, end: number) =>
      items.slice(start, end).join('')
    yield [text(left, from, one), text(right, to, other), text(left, one, one + length)]
    from = one + length
    to = other + length
  }
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

// Chinese has no spaces between words: each character is one. Intl.Segmenter knows the words, but
// takes seconds for a text of a hundred thousand characters.
const WORD = /\p{Script=Han}|(?:(?!\p{Script=Han})[\p{L}\p{M}\p{N}_])+|\s+|[^]/gu
const LETTER = /[\p{L}\p{N}]/u

function wordsOf(text: string): string[] {
  return text.match(WORD) ?? []
}

function countWords(text: string): number {
  return wordsOf(text).filter((word) => LETTER.test(word)).length
}

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{},:]|[^\s[\]{},:"]+/g
/** JSON that nests deeper is not indented further: its lines would be nothing but space. */
const DEEPEST_INDENT = 30

/** JSON with a line for each entry, every value as it was written. */
export function laidOutJson(text: string): string {
  const written: string[] = []
  let depth = 0
  let before = ''
  const newLine = () => written.push('\n', '  '.repeat(Math.min(depth, DEEPEST_INDENT)))
  for (const [token] of text.matchAll(TOKEN)) {
    const opened = before === '{' || before === '['
    const closes = token === '}' || token === ']'
    if (closes) depth -= 1
    if (opened !== closes || before === ',') newLine()
    written.push(token === ':' ? ': ' : token)
    if (token === '{' || token === '[') depth += 1
    before = token
  }
  return written.join('')
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
  return parts.flatMap((part, place): ShownPart[] => {
    const { kind, text } = part
    if (kind !== 'same') return [{ ...part, lines: 0, isWhole: isWhole(parts, place) }]
    const lines = linesOf(text)
    const start = place === 0 ? 0 : AROUND
    const end = lines.length - (place === parts.length - 1 ? 0 : AROUND)
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

function isWhole(parts: readonly DiffPart[], place: number): boolean {
  const isSame = (part: DiffPart) => part.kind === 'same'
  const before = parts.slice(Math.max(0, place - 2), place).findLast(isSame)
  const after = parts.slice(place + 1, place + 3).find(isSame)
  const begins = before === undefined || before.text.endsWith('\n')
  return begins && (after === undefined || parts[place]!.text.endsWith('\n'))
}
