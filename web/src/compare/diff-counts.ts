import type { RecordPair } from '../api/shapes'
import { namedDifferences } from './diff-rows'

/** How many pairs changed themselves, and in what way others differ. */
export function countsOf(root: RecordPair) {
  const counts = { same: 0, changed: 0, measured: 0, inherited: 0, added: 0, removed: 0 }
  const waiting = [root]
  for (let pair = waiting.pop(); pair; pair = waiting.pop()) {
    const isMeasured = namedDifferences(pair.differs).length === 0
    if (pair.inherits) counts.inherited += 1
    else counts[pair.change === 'changed' && isMeasured ? 'measured' : pair.change] += 1
    waiting.push(...pair.children)
  }
  return counts
}
