/** Which rows are open, as the query of an address: short, and read by people now and then. */
import type { OpeningRule } from './opening'

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

const SHORTEST_END = 6
/** An address has room for this many; the keys that were opened first are left out. */
const MOST_KEYS = 60

/** Keys by their ends, each as short as it can be and still be unique. */
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
