/** What a run page shows, as the query of its address: short, and read by people now and then. */
import type { OpeningRule } from './opening'
import type { TimeWindow } from './time-scale'

/** A query's parameters; null where one is to be left out. */
export type Query = Record<string, string | null>

const RULES = ['steps', 'rounds', 'calls', 'subPlans', 'all'] as const

export function readRule(text: string | null): OpeningRule {
  const named = RULES.find((rule) => rule === text)
  if (named) return named
  const depth = /^\d{1,3}$/.test(text ?? '') ? Number(text) : 0
  return depth > 0 ? depth : 'fit'
}

export function writeRule(rule: OpeningRule): string | null {
  return rule === 'fit' ? null : String(rule)
}

/** Reads `from-to` in milliseconds; null shows the whole. */
export function readWindow(text: string | null): TimeWindow | null {
  const found = /^(-?\d{1,13}(?:\.\d{1,4})?)-(-?\d{1,13}(?:\.\d{1,4})?)$/.exec(text ?? '')
  if (!found) return null
  const [from, to] = [Number(found[1]), Number(found[2])]
  return from < to ? { from, to } : null
}

/** As exact as can be seen: a hundred-thousandth of what is shown. */
export function writeWindow(shown: TimeWindow | null): string | null {
  if (shown === null) return null
  const digits = Math.min(4, Math.max(0, Math.ceil(-Math.log10((shown.to - shown.from) / 1e5))))
  return `${Number(shown.from.toFixed(digits))}-${Number(shown.to.toFixed(digits))}`
}

const SHORTEST_END = 6
/** An address has room for this many; what was opened first is left out. */
const MOST_KEYS = 60

/** Keys by their ends, each as short as tells it from all others. */
export function writeKeys(keys: ReadonlySet<string>, all: Iterable<string>): string | null {
  if (keys.size === 0) return null
  const wanted = [...keys].slice(-MOST_KEYS)
  const everything = [...all]
  let length = SHORTEST_END
  let left = new Set(wanted)
  const ends = new Map<string, string>()
  while (left.size > 0) {
    const counts = new Map<string, number>()
    for (const key of everything) {
      const end = key.slice(-length)
      counts.set(end, (counts.get(end) ?? 0) + 1)
    }
    for (const key of left) {
      const end = key.slice(-length)
      if (counts.get(end) === 1 || end === key) ends.set(key, end)
    }
    left = new Set([...left].filter((key) => !ends.has(key)))
    length += 2
  }
  return wanted.map((key) => ends.get(key)!).join('.')
}

/** The keys with these ends, as far as there are such. */
export function readKeys(text: string | null, all: Iterable<string>): Set<string> {
  const found = new Set<string>()
  if (!text) return found
  const ends = new Set(text.split('.').slice(0, MOST_KEYS).filter(Boolean))
  const lengths = new Set([...ends].map((end) => end.length))
  for (const key of all) {
    for (const length of lengths) if (ends.has(key.slice(-length))) found.add(key)
  }
  return found
}
