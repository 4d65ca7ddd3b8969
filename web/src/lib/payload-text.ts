/** Recorded text in a form that is readable and cannot mislead the reader. */

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

/** The type and the message of an error, as far as they were recorded. */
export function errorText(type: string | null, message: string | null): string {
  return [type, message].filter(Boolean).join(': ')
}

/**
 * Removes the marks of Markdown's headings, bold text, code and links, for a short form. The cells of
 * a table are separated by middle dots, its rows by semicolons.
 */
function withoutMarkdown(text: string): string {
  return text
    .replace(/\[([^\]\n]+)\]\([^()\s]*\)/g, '$1')
    .replace(/^[|:\s-]*\|[|:\s-]*$\n?/gm, '')
    .replace(/^ *\|(.*)\| *$(\n *(?=\|))?/gm, (_, cells: string, next?: string) => {
      const row = cells.split('|').map((cell) => cell.trim())
      return row.join(' · ') + (next === undefined ? '' : '; ')
    })
    .replace(/^#+ |\*\*|`/gm, '')
}

/** The start of a text in Markdown on one line, without its marks. */
export function prose(text: string | null | undefined, length = 160): string {
  return excerpt(withoutMarkdown(text?.slice(0, length * 8) ?? ''), length)
}

/** The start of a text on one line, for a row of the tree. */
export function excerpt(text: string | null | undefined, length = 160): string {
  if (!text) return ''
  // Cut first: a text of megabytes must not be searched for a row.
  const start = text
    .slice(0, length * 4)
    .replace(/\s+/g, ' ')
    .trim()
  return visibleText(start.length > length ? `${start.slice(0, length)}…` : start)
}

/** An arrow in the direction of a line that begins with a text: of its first letter, as `dir="auto"`. */
export function arrowFor(text: string): '→' | '←' {
  return /^\P{L}*[\p{Script=Arabic}\p{Script=Hebrew}]/u.test(text) ? '←' : '→'
}
