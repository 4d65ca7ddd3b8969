/** Which rows of a tree are open at first: as many as fit the screen, nearest to the top first. */
import type { Forest, Row } from './rows'

export interface Opening {
  /** Keys of the open rows. */
  expanded: ReadonlySet<string>
  /** Keys of the rows that were opened or left closed once: they stay as they are. */
  settled: ReadonlySet<string>
}

export const NOTHING_OPEN: Opening = { expanded: new Set(), settled: new Set() }

/**
 * Opens rows level by level until `capacity` rows are visible; in any case the tops, and a row with
 * none beside it or its ancestors, since there would be nothing else to see. Each row is considered
 * once, when it first has children, so that a growing tree neither reopens what its reader closed
 * nor moves what they look at.
 */
export function openWhatFits(forest: Forest, before: Opening, capacity: number): Opening {
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

/** Opens everything above one row, so that it can be seen. */
export function openTo(row: Row, before: Opening): Opening {
  const expanded = new Set(before.expanded)
  const settled = new Set(before.settled)
  for (let above = row.parent; above; above = above.parent) {
    expanded.add(above.key)
    settled.add(above.key)
  }
  return expanded.size === before.expanded.size ? before : { expanded, settled }
}

/** Takes over which rows the reader has open now. */
export function settle(keys: readonly string[], before: Opening): Opening {
  return { expanded: new Set(keys), settled: new Set([...before.settled, ...keys]) }
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
