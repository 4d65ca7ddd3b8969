/** Which rows of a tree are open: those of a rule, but for what its reader opened and closed. */
import type { Forest, Row } from './rows'

/** What is open unless somebody says otherwise. A number opens that many levels. */
export type OpeningRule = 'fit' | 'plans' | 'calls' | 'all' | number

/** What the rule `fit` has opened so far. */
export interface Fit {
  /** Keys of the open rows. */
  expanded: ReadonlySet<string>
  /** Keys of the rows that were opened or left closed once: they stay as they are. */
  settled: ReadonlySet<string>
}

export const NOTHING_FIT: Fit = { expanded: new Set(), settled: new Set() }

/** What differs from the rule, by row keys. */
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
  const open = new Set<string>()
  const plans = rule === 'plans' ? rowsAbovePlans(forest) : null
  let level: Row[] = forest.tops
  for (let depth = 1; level.length > 0; depth += 1) {
    const next: Row[] = []
    for (const row of level) {
      for (const child of row.children) next.push(child)
      if (row.children.length === 0) continue
      const isOpen =
        rule === 'all' ||
        (rule === 'calls' && row.kind !== 'toolCall') ||
        (typeof rule === 'number' && depth < rule) ||
        plans?.has(row)
      if (isOpen) open.add(row.key)
    }
    level = next
  }
  return open
}

function rowsAbovePlans(forest: Forest): Set<Row> {
  const found = new Set<Row>()
  for (const row of forest.byKey.values()) {
    if (row.kind !== 'plan') continue
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

/** Takes over that these rows are open or closed, whatever the rule says of them. */
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
