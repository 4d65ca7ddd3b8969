/** Model calls, numbered through a whole run by their start. */
import { isRecord, type Forest } from './rows'

const known = new WeakMap<Forest, ReadonlyMap<string, number>>()

/**
 * Returns the number of each model call in the run, from 1, by its id; empty if one agent made all of
 * them, which numbers them itself.
 */
export function callNumbers(forest: Forest): ReadonlyMap<string, number> {
  const before = known.get(forest)
  if (before) return before
  const calls = forest.all.filter(isRecord).filter(({ kind }) => kind === 'thinkAct')
  calls.sort((one, other) => (one.span?.start ?? Infinity) - (other.span?.start ?? Infinity) || 0)
  const isOneAgents = new Set(calls.map(({ parent }) => parent?.key)).size < 2
  const numbers = new Map(isOneAgents ? [] : calls.map(({ id }, index) => [id, index + 1]))
  known.set(forest, numbers)
  return numbers
}
