/** Numbers, durations and moments in a reader's language. */

/** A duration in the two units that matter: `340ms`, `1.2s`, `2m 5s`, `3h 12m`, `324d 19h`. */
export function formatDuration(milliseconds: number, locale: string): string {
  const shown = Math.max(0, milliseconds)
  if (shown < 999.5) return formatUnit(Math.round(shown), 'millisecond', locale)
  if (shown < 9_950) return formatUnit(shown / 1000, 'second', locale, 1)
  // Rounded before it is split, so that no 60 seconds appear.
  const seconds = Math.round(shown / 1000)
  if (seconds < 60) return formatUnit(seconds, 'second', locale)
  const minutes = Math.floor(seconds / 60)
  if (minutes < 60) return pair(minutes, 'minute', seconds % 60, 'second', locale)
  const hours = Math.floor(minutes / 60)
  if (hours < 24) return pair(hours, 'hour', minutes % 60, 'minute', locale)
  return pair(Math.floor(hours / 24), 'day', hours % 24, 'hour', locale)
}

/**
 * A moment since the start of a run, as exact as a step of the axis: `250ms`, `1.25s`, `2m 30s`.
 *
 * @param step How far the moments that are named lie apart, in milliseconds.
 */
export function formatOffset(offset: number, step: number, locale: string): string {
  const size = Math.abs(offset)
  const sign = offset < 0 ? '−' : ''
  const digits = (unitLength: number) =>
    Math.max(0, -Math.floor(Math.log10(step / unitLength) + 1e-9))
  if (size < 1000) return sign + formatUnit(size, 'millisecond', locale, digits(1))
  // Rounded before it is split, so that no 60 seconds appear.
  const fine = Math.min(digits(1000), 5)
  const total = Number((size / 1000).toFixed(fine))
  const parts = [
    [Math.floor(total / 86_400), 'day'],
    [Math.floor(total / 3600) % 24, 'hour'],
    [Math.floor(total / 60) % 60, 'minute'],
    [total % 60, 'second'],
  ] as const
  const named = parts.filter(([value]) => value !== 0)
  return sign + named.map(([value, name]) => formatUnit(value, name, locale, fine)).join(' ')
}

function pair(big: number, bigUnit: string, small: number, smallUnit: string, locale: string) {
  return `${formatUnit(big, bigUnit, locale)} ${formatUnit(small, smallUnit, locale)}`
}

/** A value with its unit, in the narrow form: `1.2s`. */
export function formatUnit(value: number, name: string, locale: string, digits = 0): string {
  const key = `${locale} ${name} ${digits}`
  // The narrow form of milliseconds is "ms" in Chinese too, unlike those of seconds and minutes.
  const isWord = name === 'millisecond' && locale.startsWith('zh')
  const format =
    units.get(key) ??
    new Intl.NumberFormat(locale, {
      style: 'unit',
      unit: name,
      unitDisplay: name === 'byte' || isWord ? 'long' : 'narrow',
      maximumFractionDigits: digits,
    })
  units.set(key, format)
  return format.format(value)
}

/** How long something took, or has taken so far by the reader's clock; null before it starts. */
export function elapsed(
  record: { startedAt: string | null; finishedAt: string | null; durationMs: number | null },
  open: boolean,
  now: number,
): number | null {
  if (record.durationMs !== null) return record.durationMs
  if (!open || record.startedAt === null) return null
  return Math.max(0, now - Date.parse(record.startedAt))
}

export function formatCount(value: number, locale: string): string {
  return numbers(locale, {}).format(value)
}

/** A part of a whole as a percentage; a small one is never shown as none, nor a large one as all. */
export function formatShare(share: number, locale: string): string {
  const isNearAnEnd = (share > 0 && share < 0.1) || (share > 0.9 && share < 1)
  const shown = share > 0 && share < 1 ? Math.min(Math.max(share, 0.001), 0.999) : share
  const maximumFractionDigits = isNearAnEnd ? 1 : 0
  return numbers(locale, { style: 'percent', maximumFractionDigits }).format(shown)
}

/** How many times as long something took: `×2.4`, `×12`. */
export function formatFactor(factor: number, locale: string): string {
  const maximumFractionDigits = factor < 9.95 ? 1 : 0
  return `×${numbers(locale, { maximumFractionDigits }).format(factor)}`
}

/** How much more or less a second value is: `×2.5`, `−58%`, `=`, `↑` from none; a dash if one is unknown. */
export function formatChange(before: number | null, after: number | null, locale: string): string {
  if (before === null || after === null) return '–'
  if (before === after) return '='
  if (before > 0 && after / before >= 1.05) return formatFactor(after / before, locale)
  if (before > 0) {
    const share = Math.round((after / before - 1) * 100)
    if (share !== 0) return `${share > 0 ? '+' : '−'}${Math.abs(share)}%`
  }
  return after > before ? '↑' : '↓'
}

interface Costs {
  costUsd: number | null
  unpricedCalls: number
}

/** The cost of some part of a run: `$0.12`, `≥ $0.12` if the prices of some model calls are unknown,
 * and `unknown` if only those calls cost something. */
export function formatKnownCost(costs: Costs, locale: string, unknown: string): string {
  if (costs.costUsd === null) return unknown
  const known = formatCost(costs.costUsd, locale)
  return costs.unpricedCalls > 0 ? `≥ ${known}` : known
}

/** The cost of some part of a run; null if the prices of some model calls are unknown. */
export function completeCost({ costUsd, unpricedCalls }: Costs): number | null {
  return unpricedCalls > 0 ? null : costUsd
}

/**
 * The cost of a row in a column of a run's costs: every row has the same digits after the point, of
 * which three are significant in the cost of the whole run, so that costs can be compared by eye.
 */
export function formatColumnCost(
  costs: Costs,
  wholeUsd: number,
  locale: string,
  unknown: string,
): string {
  if (costs.costUsd === null) return unknown
  const digits = Math.min(7, Math.max(2, 2 - Math.floor(Math.log10(wholeUsd || 1))))
  const least = 10 ** -digits
  const isLess = costs.costUsd > 0 && costs.costUsd < least
  const shown = formatCurrency(isLess ? least : costs.costUsd, locale, {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  })
  return `${costs.unpricedCalls > 0 ? '≥ ' : isLess ? '<' : ''}${shown}`
}

/** US dollars: two digits from one dollar on; below it four, and more where those would be zeros. */
export function formatCost(usd: number, locale: string): string {
  if (usd === 0 || usd >= 1) return formatCurrency(usd, locale)
  if (usd < 0.001) return formatCurrency(usd, locale, { maximumSignificantDigits: 2 })
  return formatCurrency(usd, locale, { minimumFractionDigits: 4 })
}

/** US dollars with the digits of the options. */
export function formatCurrency(
  usd: number,
  locale: string,
  digits: Intl.NumberFormatOptions = {},
): string {
  const style = { style: 'currency', currency: 'USD', currencyDisplay: 'narrowSymbol' } as const
  return numbers(locale, { ...style, ...digits }).format(usd)
}

export function formatBytes(bytes: number, locale: string): string {
  if (bytes < 1000) return formatUnit(bytes, 'byte', locale)
  if (bytes < 999_500) return formatUnit(bytes / 1000, 'kilobyte', locale, bytes < 10_000 ? 1 : 0)
  return formatUnit(bytes / 1_000_000, 'megabyte', locale, 1)
}

/** A moment in the reader's zone, to the second; without the day if it is the day of `now`. */
export function formatMoment(moment: string, locale: string, now: number | null): string {
  const at = new Date(moment)
  const today = now !== null && new Date(now).toDateString() === at.toDateString()
  return moments(locale, today ? 'time' : 'day').format(at)
}

/** A moment exactly, and its zone at the end: Chinese formats have it between day and time. */
export function formatExactMoment(moment: string, locale: string): string {
  const parts = moments(locale, 'exact').formatToParts(new Date(moment))
  const isZone = ({ type }: Intl.DateTimeFormatPart) => type === 'timeZoneName'
  const rest = parts.filter((part) => !isZone(part)).map(({ value }) => value)
  return `${rest.join('').replace(/ {2,}/, ' ').trim()} ${parts.find(isZone)?.value ?? ''}`
}

const MOMENT_STYLES: Record<'time' | 'day' | 'exact', Intl.DateTimeFormatOptions> = {
  time: { timeStyle: 'medium' },
  day: { dateStyle: 'medium', timeStyle: 'medium' },
  exact: {
    year: 'numeric',
    month: 'short',
    day: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    fractionalSecondDigits: 3,
    timeZoneName: 'short',
  },
}

// Intl formatters cost more to make than to use, and a tree asks for thousands.
const units = new Map<string, Intl.NumberFormat>()
const made = new Map<string, Intl.NumberFormat | Intl.DateTimeFormat>()

function numbers(locale: string, options: Intl.NumberFormatOptions): Intl.NumberFormat {
  const key = `${locale} ${JSON.stringify(options)}`
  const found = made.get(key) ?? new Intl.NumberFormat(locale, options)
  made.set(key, found)
  return found as Intl.NumberFormat
}

function moments(locale: string, style: keyof typeof MOMENT_STYLES): Intl.DateTimeFormat {
  const key = `${locale} ${style}`
  const found = made.get(key) ?? new Intl.DateTimeFormat(locale, MOMENT_STYLES[style])
  made.set(key, found)
  return found as Intl.DateTimeFormat
}

const AGO = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
] as const

/** A past moment relative to now, such as `3 min. ago`; within a minute `now`. */
export function formatAgo(moment: string, locale: string, now: number): string {
  const passed = Math.max(0, now - Date.parse(moment))
  const [unitName, length] = AGO.find(([, each]) => passed >= each) ?? ['second', Infinity]
  const key = `${locale} ago`
  const format =
    relatives.get(key) ?? new Intl.RelativeTimeFormat(locale, { numeric: 'auto', style: 'short' })
  relatives.set(key, format)
  const number = -Math.floor(passed / length)
  // The browser's word for the present, "现在", is not used for the time of an event.
  return number === 0 && locale.startsWith('zh') ? '刚刚' : format.format(number, unitName)
}

const relatives = new Map<string, Intl.RelativeTimeFormat>()
