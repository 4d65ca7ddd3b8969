/** The title of the browser's tab, and its icon: whether the shown run runs, or failed. */
import { onScopeDispose, watchEffect } from 'vue'
import type { ShownStatus } from '../api/shapes'

const MARKS: Partial<Record<ShownStatus, string>> = { running: '▸ ', failed: '✕ ' }

/**
 * @param title What the page is about.
 * @param status The status of the shown record; null if the page has none.
 */
export function usePageTitle(title: () => string, status: () => ShownStatus | null = () => null) {
  watchEffect(() => {
    const own = title()
    const shown = status()
    const mark = (shown && MARKS[shown]) ?? ''
    document.title = own ? `${mark}${own} · Tracer` : 'Tracer'
    showIcon(mark ? `/favicon-${shown}.svg` : PLAIN)
  })
  onScopeDispose(() => showIcon(PLAIN))
}

const PLAIN = '/favicon.svg'

function showIcon(path: string) {
  const link = document.querySelector('link[rel="icon"]')
  if (link && link.getAttribute('href') !== path) link.setAttribute('href', path)
}
