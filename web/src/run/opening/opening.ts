/** The open rows of a tree: those of a rule, with the exceptions that the reader made. */
import { planOf, type Forest, type Row } from '../forest/rows'

/**
 * The rows that are open by default: as many as fit the screen; the rows above the steps,
 * LLM calls or tools, so that these are the last visible ones; the rows above sub-agents; all. A
 * number opens the plans that lie so deep or less, whole: 1 is the root plan without its sub-plans.
 */
export type OpeningRule = 'fit' | ClosedKind | 'subPlans' | 'all' | number

/** How many kinds of rows are open above those that a rule names. */
const OPEN_ABOVE = { steps: 1, rounds: 2, calls: 3 } as const

export type ClosedKind = keyof typeof OPEN_ABOVE

const KINDS: readonly Row['kind'][] = ['plan', 'step', 'thinkAct', 'toolCall']

/** The rows that the rule `fit` has opened so far. */
export interface Fit {
  /** Keys of the open rows. */
  expanded: ReadonlySet<string>
  /** Keys of the rows that were opened or left closed once: they stay as they are. */
  settled: ReadonlySet<string>
}

export const NOTHING_FIT: Fit = { expanded: new Set(), settled: new Set() }

/** Exceptions from the rule, by row keys. */
export interface Exceptions {
  opened: ReadonlySet<string>
  closed: ReadonlySet<string>
}

export const NO_EXCEPTIONS: Exceptions = { opened: new Set(), closed: new Set() }

/**
 * Opens rows level by level until `capacity` rows are visible; in any case the tops, and a row with
 * none beside it or its ancestors, since there would be nothing else to see. Each row is considered
 * once, when it first has children, so that a growing tree neither reopens what its reader closed
 * nor moves what they look at.
 */
export function openWhatFits(forest: Forest, before: Fit, capacity: number): Fit {
  const expanded = new Set(before.expanded)
  const settled = new Set(before.settled)
  let level: Row[] = forest.tops
  let visible = countVisible(forest.tops, expanded)
  let changed = false
  let alone = true
  while (level.length > 0) {
    alone &&= level.length === 1
    const next: Row[] = []
    for (const row of level) {
      if (row.children.length > 0 && !settled.has(row.key)) {
        settled.add(row.key)
        changed = true
        const fits = visible + row.children.length <= capacity
        if (fits || row.parent === null || alone) {
          expanded.add(row.key)
          visible += row.children.length
        }
      }
      if (expanded.has(row.key)) for (const child of row.children) next.push(child)
    }
    level = next
  }
  return changed ? { expanded, settled } : before
}

/** The keys of the rows that a rule opens. */
export function openByRule(forest: Forest, rule: OpeningRule, fit: Fit): ReadonlySet<string> {
  if (rule === 'fit') return fit.expanded
  const isOpen = opensBy(forest, rule)
  const open = new Set<string>()
  for (const [row, depth] of withDepths(forest)) {
    if (row.children.length > 0 && isOpen(row, depth)) open.add(row.key)
  }
  return open
}

function opensBy(
  forest: Forest,
  rule: Exclude<OpeningRule, 'fit'>,
): (row: Row, depth: number) => boolean {
  if (rule === 'all') return () => true
  if (typeof rule === 'number') return (_, depth) => depth <= rule
  if (rule === 'subPlans') {
    const above = rowsAbovePlans(forest)
    return (row) => above.has(row)
  }
  return (row) => KINDS.indexOf(row.kind) < OPEN_ABOVE[rule]
}

/** How many plans lie within each other at most. */
export function deepestPlan(forest: Forest): number {
  let deepest = 0
  for (const [, depth] of withDepths(forest)) deepest = Math.max(deepest, depth)
  return deepest
}

/** Every row, with how many plans it lies in, itself counted. */
function* withDepths(forest: Forest): Generator<[Row, number]> {
  const waiting: [Row, number][] = forest.tops.map((row) => [row, 0])
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const [row, above] = next
    const depth = planOf(row) ? above + 1 : above
    yield [row, depth]
    for (const child of row.children) waiting.push([child, depth])
  }
}

function rowsAbovePlans(forest: Forest): Set<Row> {
  const found = new Set<Row>()
  for (const row of forest.all) {
    if (!planOf(row)) continue
    for (let above = row.parent; above && !found.has(above); above = above.parent) found.add(above)
  }
  return found
}

/** The keys of all open rows. */
export function openRows(
  byRule: ReadonlySet<string>,
  { opened, closed }: Exceptions,
): ReadonlySet<string> {
  if (opened.size === 0 && closed.size === 0) return byRule
  const open = new Set(byRule)
  for (const key of opened) open.add(key)
  for (const key of closed) open.delete(key)
  return open
}

/** Makes these rows open or closed, as exceptions from the rule. */
export function except(
  before: Exceptions,
  byRule: ReadonlySet<string>,
  keys: Iterable<string>,
  isOpen: boolean,
): Exceptions {
  const opened = new Set(before.opened)
  const closed = new Set(before.closed)
  for (const key of keys) {
    opened.delete(key)
    closed.delete(key)
    if (byRule.has(key) !== isOpen) (isOpen ? opened : closed).add(key)
  }
  return { opened, closed }
}

/** The keys of the rows above one that would have to be opened for it to be seen. */
export function closedAbove(row: Row, open: ReadonlySet<string>): string[] {
  const keys: string[] = []
  for (let above = row.parent; above; above = above.parent) {
    if (!open.has(above.key)) keys.push(above.key)
  }
  return keys
}

function countVisible(rows: readonly Row[], expanded: ReadonlySet<string>): number {
  let count = 0
  let level = rows
  while (level.length > 0) {
    count += level.length
    level = level.filter((row) => expanded.has(row.key)).flatMap((row) => row.children)
  }
  return count
}
