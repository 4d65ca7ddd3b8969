/** Finding text in a text, whatever its case, accents and spaces are. */

/**
 * Text as it is compared: without case, accents and the width of letters, each run of spaces as one.
 * An escape of JSON such as `\u00e9` is the same as its letter.
 */
export function folded(text: string): string {
  return isSimple(text) ? text.toLowerCase().replace(/\s+/g, ' ') : foldWithOffsets(text).text
}

/** Whether a text can be folded fast, as most payloads can. */
function isSimple(text: string): boolean {
  return /^[\x00-\x7f]*$/.test(text) && !text.includes('\\u')
}

export interface Folded {
  text: string
  /** For each character of the folded text, where in the original it comes from; and its end. */
  offsets: number[]
}

const PIECE = /\\u[0-9a-f]{4}|\s+|[^]/giu

export function foldWithOffsets(text: string): Folded {
  let out = ''
  const offsets: number[] = []
  for (const found of text.matchAll(PIECE)) {
    const plain = foldedPiece(found[0])
    for (let at = 0; at < plain.length; at += 1) offsets.push(found.index)
    out += plain
  }
  offsets.push(text.length)
  return { text: out, offsets }
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

/** Folds a query; empty if it has nothing but spaces. */
export function foldedQuery(query: string): string {
  return folded(query.trim())
}

/** Whether a query has something that the server can search: a word without a minus. */
export function hasWord(query: string): boolean {
  return /(^|[\s"])[^\s\p{L}\p{N}-]*[\p{L}\p{N}]/u.test(query)
}

/** The words and phrases of a folded query, without those that a minus excludes. */
export function needlesOf(query: string): string[] {
  const found = [...query.matchAll(/(-?)(?:"([^"]*)"?|([^\s"]+))/g)]
  return found
    .filter(([, minus]) => minus === '')
    .map(([, , phrase, word]) => (phrase ?? word ?? '').trim())
    .filter((needle) => needle !== '')
}

/** A part of a text; `hit` if it matches the query. */
export interface Part {
  text: string
  hit: boolean
}

/** Yields where a folded text has the query as a whole, or else its words and phrases. */
function* hitsIn(plain: string, query: string): Generator<[at: number, length: number]> {
  const needles = plain.includes(query) ? [query] : needlesOf(query)
  if (needles.length === 0) return
  const pattern = needles.map((each) => each.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&')).join('|')
  for (const found of plain.matchAll(new RegExp(pattern, 'g'))) {
    yield [found.index, found[0].length]
  }
}

/** Divides a text into hits and the parts between them, in order. */
export function partsOf(text: string, query: string, most = 1_000): Part[] {
  if (query === '' || text === '') return [{ text, hit: false }]
  const simple = isSimple(text) && !query.includes(' ')
  const { text: plain, offsets } = simple
    ? { text: text.toLowerCase(), offsets: null }
    : foldWithOffsets(text)
  const parts: Part[] = []
  let shown = 0
  let left = most
  for (const [at, length] of hitsIn(plain, query)) {
    if (left === 0) break
    const start = offsets ? offsets[at]! : at
    const end = offsets ? endOf(offsets, at + length - 1) : at + length
    if (start >= shown) {
      if (start > shown) parts.push({ text: text.slice(shown, start), hit: false })
      parts.push({ text: text.slice(start, end), hit: true })
      shown = end
      left -= 1
    }
  }
  if (shown < text.length) parts.push({ text: text.slice(shown), hit: false })
  return parts
}

/**
 * Returns the offset in the original at which a hit ends.
 *
 * A letter is a hit whole, with the accents after it, even if it folds to several characters.
 *
 * @param last The index of the hit's last folded character.
 */
function endOf(offsets: readonly number[], last: number): number {
  let next = last + 1
  while (next < offsets.length - 1 && offsets[next] === offsets[last]) next += 1
  return offsets[next]!
}
