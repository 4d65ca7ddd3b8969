/** Recorded text made visible: what it was, readable, and unable to play tricks on the reader. */

// C0 and C1 controls but tab, line feed and carriage return; the characters that turn the
// direction of text around.
const TRICKS =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

/** Replaces characters that act instead of showing by ones that show: ESC by ␛, U+202E by its code. */
export function visibleText(text: string): string {
  return text.replace(TRICKS, (character) => {
    const code = character.charCodeAt(0)
    if (code < 0x20) return String.fromCharCode(0x2400 + code)
    if (code === 0x7f) return '\u2421'
    return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, '0')}\u27e9`
  })
}

/** The start of a text on one line, for a row of the tree. */
export function gist(text: string | null, length = 160): string {
  if (!text) return ''
  // Cut first: a text of megabytes must not be searched for a row.
  const start = text
    .slice(0, length * 4)
    .replace(/\s+/g, ' ')
    .trim()
  return visibleText(start.length > length ? `${start.slice(0, length)}…` : start)
}

const DEEPEST_INDENT = 40

/**
 * Lays out the text of a JSON object or array in lines, or returns null where it is none. Works on
 * the text itself: parsing would change numbers that JavaScript cannot hold, and repeated keys.
 */
export function laidOutJson(text: string): string | null {
  if (!/^\s*[[{]/.test(text) || !isJson(text)) return null
  const parts: string[] = []
  let depth = 0
  let at = 0
  while (at < text.length) {
    const character = text[at]!
    if (character === '"') {
      const end = endOfString(text, at)
      parts.push(text.slice(at, end))
      at = end
      continue
    }
    at += 1
    if (/\s/.test(character)) continue
    if (character === '{' || character === '[') {
      const close = nextSolid(text, at)
      if (text[close] === '}' || text[close] === ']') {
        parts.push(character, text[close]!)
        at = close + 1
      } else {
        depth += 1
        parts.push(character, lineBreak(depth))
      }
    } else if (character === '}' || character === ']') {
      depth -= 1
      parts.push(lineBreak(depth), character)
    } else if (character === ',') parts.push(',', lineBreak(depth))
    else if (character === ':') parts.push(': ')
    else parts.push(character)
  }
  return parts.join('')
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

function endOfString(text: string, start: number): number {
  let at = start + 1
  while (text[at] !== '"') at += text[at] === '\\' ? 2 : 1
  return at + 1
}

function nextSolid(text: string, start: number): number {
  let at = start
  while (/\s/.test(text[at] ?? 'x')) at += 1
  return at
}

function lineBreak(depth: number): string {
  return `\n${'  '.repeat(Math.min(depth, DEEPEST_INDENT))}`
}
