/** The title of the browser's tab, and its icon: whether the shown run runs, or failed. */
import { useFavicon, useTitle } from '@vueuse/core'
import type { ShownStatus } from '../api/shapes'

const MARKS: Partial<Record<ShownStatus, string>> = { running: '▸ ', failed: '✕ ' }

/**
 * @param title What the page is about.
 * @param status The status of the shown record; null if the page has none.
 */
export function usePageTitle(title: () => string, status: () => ShownStatus | null = () => null) {
  const mark = () => MARKS[status() ?? 'unknown'] ?? ''
  useTitle(() => (title() ? `${mark()}${title()} · Tracer` : 'Tracer'), { restoreOnUnmount: false })
  useFavicon(() => (mark() ? `/favicon-${status()}.svg` : '/favicon.svg'))
}
