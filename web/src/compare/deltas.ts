/** How much more or less the right record took, with its sign. */
import { formatCount, formatCurrency, formatOffset, formatUnit } from '../lib/formatting'
import type { Measure } from './diff-rows'

/**
 * The difference of two values such as `+1.2s`; `=` for none.
 *
 * The values are first rounded as the page shows them, to the coarser of the two steps. Otherwise 737 ms
 * and 740 ms could have a difference of 4 ms.
 */
export function formatDelta(measure: Measure, values: [number, number], locale: string): string {
  const { stepOf, format } = MEASURES[measure]
  const step = Math.max(...values.map(stepOf))
  const [left, right] = values.map((value) => shownSteps(value, step)) as [number, number]
  const steps = Math.abs(right - left)
  if (steps === 0) return '='
  return `${right > left ? '+' : '−'}${format(steps, step, locale)}`
}

/** A value as the page shows it. */
export function shownValue(measure: Measure, value: number): number {
  const step = MEASURES[measure].stepOf(value)
  return shownSteps(value, step) * step
}

const MINUTE = 60_000

/** How many steps of its rounding a value has. `formatDuration` cuts off the seconds of an hour or more. */
function shownSteps(value: number, step: number): number {
  const positive = Math.max(0, value)
  if (step < MINUTE) return Math.round(positive / step)
  return Math.floor(Math.round(positive / 1000) / (step / 1000))
}

interface MeasureFormat {
  /** The step to which the page rounds a value. */
  stepOf: (value: number) => number
  /** Formats a number of steps. */
  format: (steps: number, step: number, locale: string) => string
}

const COUNTED: MeasureFormat = {
  stepOf: () => 1,
  format: (steps, _, locale) => formatCount(steps, locale),
}
const MEASURES: Record<Measure, MeasureFormat> = {
  duration: { stepOf: durationStep, format: formatSteps },
  inputTokens: COUNTED,
  outputTokens: COUNTED,
  tokens: COUNTED,
  cost: { stepOf: costStep, format: formatCostSteps },
}

/** The step to which `formatDuration` rounds, in milliseconds. */
function durationStep(milliseconds: number): number {
  if (milliseconds < 999.5) return 1
  if (milliseconds < 9_950) return 100
  if (milliseconds < 3_599_500) return 1000
  return milliseconds < 86_399_500 ? MINUTE : 60 * MINUTE
}

function formatSteps(steps: number, step: number, locale: string): string {
  if (step === 100) return formatUnit(steps / 10, 'second', locale, 1)
  return formatOffset(steps * step, step, locale)
}

/** The step to which `formatCost` rounds, in US dollars. */
function costStep(usd: number): number {
  if (usd >= 1) return 0.01
  return 10 ** Math.min(-4, Math.floor(Math.log10(Math.max(usd, LEAST))) - 1)
}

/** No cost is so small. */
const LEAST = 1e-12

function formatCostSteps(steps: number, step: number, locale: string): string {
  const digits = -Math.round(Math.log10(step))
  const [minimumFractionDigits, maximumFractionDigits] = [Math.min(4, digits), digits]
  return formatCurrency(steps * step, locale, { minimumFractionDigits, maximumFractionDigits })
}
