/** What a reader chose for all pages, kept on their device as far as the browser lets it. */

export type Choice = 'language' | 'theme' | 'density' | 'shortcuts' | 'views' | `share.${string}`

/** What was chosen before; null where nothing was, or the browser denies its storage. */
export function rememberedChoice(choice: Choice): string | null {
  try {
    return localStorage.getItem(`tracer.${choice}`)
  } catch {
    return null
  }
}

/** Keeps a choice, or with null forgets it; denied storage lets it hold until the page is left. */
export function rememberChoice(choice: Choice, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(`tracer.${choice}`)
    else localStorage.setItem(`tracer.${choice}`, value)
  } catch {
    // As said.
  }
}
