/** How long an outcome is shown, in milliseconds. */
export const SHOWN = 2_000

/** Copies a text into the clipboard. Returns whether that worked, which VueUse does not report. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return copyByHand(text)
  }
}

/** Copies without the clipboard, which browsers deny to a page that came without TLS. */
function copyByHand(text: string): boolean {
  const focused = document.activeElement
  // In a dialog too, which lets the focus go nowhere else.
  const container = focused?.parentElement ?? document.body
  const field = document.createElement('textarea')
  field.value = text
  field.className = 'visually-hidden'
  container.append(field)
  field.select()
  // Deprecated, but the only way there is.
  const copied = document.execCommand('copy')
  field.remove()
  if (focused instanceof HTMLElement) focused.focus()
  return copied
}
