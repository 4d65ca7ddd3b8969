/** How much more or less the right record took, with its sign. */
import { formatCost, formatCount, formatDuration } from '../lib/formatting'
import type { Measure } from './diff-rows'

const FORMATS: Record<Measure, (value: number, locale: string) => string> = {
  duration: formatDuration,
  tokens: formatCount,
  cost: formatCost,
}

/** The difference such as `+1.2s`; `=` for none, a dash if it is unknown. */
export function formatDelta(measure: Measure, delta: number | null, locale: string): string {
  if (delta === null) return '–'
  const least = measure === 'duration' ? 0.5 : 1e-9
  if (Math.abs(delta) < least) return '='
  return `${delta > 0 ? '+' : '−'}${FORMATS[measure](Math.abs(delta), locale)}`
}
