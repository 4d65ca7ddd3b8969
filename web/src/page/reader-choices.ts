/** Choices of a reader for all pages, kept on the device if the browser allows it. */

export type Choice = 'language' | 'theme' | 'density' | 'shortcuts' | 'views' | `share.${string}`

/** The remembered choice; null by default, or if the browser denies its storage. */
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
    // Without storage, the choice holds until the page is left.
  }
}
