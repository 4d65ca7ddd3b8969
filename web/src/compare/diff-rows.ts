/** Two compared runs as the rows of one tree: visible rows, and the differences of each pair. */
import type { Change, ComparedRecord, Difference, Kind, RecordPair } from '../api/shapes'
import { completeCost } from '../lib/formatting'
import { excerpt, prose } from '../lib/payload-text'

export interface DiffRow {
  /** The left record's id, else the right one's; `kind:id` where another kind has the same one. */
  key: string
  pair: RecordPair
  /** The pairs below it that repeat it and have no row of their own, as in a run's tree. */
  carried: readonly RecordPair[]
  /** How the row differs, with its carried pairs. */
  change: Change
  differs: ReadonlySet<Difference>
  /** How many pairs below the row differ. */
  changedBelow: number
  /** Whether only something below the row differs, or it only for that, by the API's `inherits`. */
  isInherited: boolean
  parent: DiffRow | null
  children: DiffRow[]
  level: number
}

export interface DiffRows {
  top: DiffRow
  byKey: Map<string, DiffRow>
}

/** Turns a comparison into rows. No recursion: a run may nest deeply. */
export function buildDiffRows(root: RecordPair): DiffRows {
  const byKey = new Map<string, DiffRow>()

  function add(pair: RecordPair, parent: DiffRow | null): DiffRow {
    const id = (pair.left ?? pair.right)!.id
    const key = byKey.has(id) ? `${pair.kind}:${id}` : id
    const carried = repetitionsOf(pair)
    const row: DiffRow = {
      key,
      pair,
      carried,
      ...differenceOf(pair, carried),
      parent,
      children: [],
      level: (parent?.level ?? 0) + 1,
    }
    byKey.set(key, row)
    for (const each of carried) {
      const id = (each.left ?? each.right)!.id
      if (!byKey.has(id)) byKey.set(id, row)
    }
    return row
  }

  const top = add(root, null)
  const waiting = [top]
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    const parent = row
    row.children = lastOf(row).children.map((pair) => add(pair, parent))
    waiting.push(...row.children)
  }
  return { top, byKey }
}

const lastOf = ({ pair, carried }: DiffRow) => carried.at(-1) ?? pair

/** The pairs that a pair's row carries: the only sub-agent of a call, the only step of an agent. */
function repetitionsOf(pair: RecordPair): RecordPair[] {
  const carried: RecordPair[] = []
  let last = pair
  for (let next = repetitionOf(last); next; next = repetitionOf(last)) {
    carried.push(next)
    last = next
  }
  return carried
}

function repetitionOf(pair: RecordPair): RecordPair | null {
  const [child, other] = pair.children
  if (!child || other) return null
  const repeats =
    (pair.kind === 'toolCall' && child.kind === 'plan') ||
    (pair.kind === 'plan' && child.kind === 'step')
  const hasSameSides =
    (pair.left === null) === (child.left === null) &&
    (pair.right === null) === (child.right === null)
  return repeats && hasSameSides ? child : null
}

function differenceOf(pair: RecordPair, carried: readonly RecordPair[]) {
  const all = [pair, ...carried]
  const differs = new Set(all.flatMap((each) => each.differs))
  const change = all.find((each) => each.change !== 'same')?.change ?? 'same'
  const { changedBelow } = all.at(-1)!
  const isInherited =
    (change === 'same' && changedBelow > 0) ||
    (change === 'changed' && all.every((each) => each.change === 'same' || each.inherits))
  return { change, differs, changedBelow, isInherited }
}

/** Whether a row differs, or anything below it does. */
export function isAffected({ change, changedBelow }: DiffRow): boolean {
  return change !== 'same' || changedBelow > 0
}

/** Whether a row is open: by itself where something below it differs, unless it was turned over. */
export function isOpen(row: DiffRow, turned: ReadonlySet<string>): boolean {
  const { left, right } = row.pair
  // A record that only one run has differs with all records below it: its top row counts.
  const byItself = row.parent === null || (row.changedBelow > 0 && left !== null && right !== null)
  return byItself !== turned.has(row.key)
}

/** The children that are shown. */
export function shownChildren(row: DiffRow, onlyDifferences: boolean): DiffRow[] {
  return onlyDifferences ? row.children.filter(isAffected) : row.children
}

/** The rows to show, from top to bottom. */
export function visibleDiffRows(
  top: DiffRow,
  turned: ReadonlySet<string>,
  onlyDifferences: boolean,
): DiffRow[] {
  const visible: DiffRow[] = []
  const waiting = [top]
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    visible.push(row)
    if (isOpen(row, turned)) waiting.push(...[...shownChildren(row, onlyDifferences)].reverse())
  }
  return visible
}

/** The rows that differ themselves, from top to bottom; for records of one run only, the topmost. */
export function differingRows(top: DiffRow): DiffRow[] {
  const found: DiffRow[] = []
  const waiting = [top]
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    const { change } = row
    if (change !== 'same') found.push(row)
    if (change === 'added' || change === 'removed') continue
    waiting.push(...[...row.children].reverse())
  }
  return found
}

/** The row among `wanted` that comes next after one, or before it; from the last to the first. */
export function neighbour(
  top: DiffRow,
  wanted: readonly DiffRow[],
  from: DiffRow | null,
  direction: 1 | -1,
): DiffRow | null {
  const targets = new Set(wanted)
  const order = inOrder(top).filter((row) => targets.has(row) || row === from)
  const index = from === null ? -1 : order.indexOf(from)
  const around = [...order.slice(index + 1), ...order.slice(0, Math.max(0, index))]
  if (direction === -1) around.reverse()
  return around.find((row) => targets.has(row)) ?? null
}

function inOrder(top: DiffRow): DiffRow[] {
  const found: DiffRow[] = []
  const waiting = [top]
  for (let row = waiting.pop(); row; row = waiting.pop()) {
    found.push(row)
    waiting.push(...[...row.children].reverse())
  }
  return found
}

/** The keys to turn over so that a row shows. */
export function closedAbove(row: DiffRow, turned: ReadonlySet<string>): string[] {
  const keys: string[] = []
  for (let each = row.parent; each; each = each.parent)
    if (!isOpen(each, turned)) keys.push(each.key)
  return keys
}

/** A record's name. The name of a round is its answer's first paragraph, else the tools that it chose. */
export function nameOf(pair: RecordPair, side: 'left' | 'right'): string {
  const record = pair[side]
  if (record === null) return ''
  if (record.name || record.calls.length === 0)
    return prose(record.name?.split(/\n\s*\n/, 1)[0], 200)
  return excerpt(`→ ${[...new Set(record.calls)].join(', ')}`, 200)
}

/** The sub-agent that a tool call's row carries; empty for none. */
export function agentOf({ pair, carried }: DiffRow): string {
  const step = carried.find(({ kind }) => kind === 'step')
  return pair.kind === 'toolCall' && step ? excerpt(step.name, 60) : ''
}

/** The differences without those of time, tokens and cost, which have columns of their own. */
export function namedDifferences(differs: Iterable<Difference>) {
  return [...differs].filter((each) => each !== 'duration' && each !== 'tokens' && each !== 'cost')
}

export type Measure = 'duration' | 'inputTokens' | 'outputTokens' | 'tokens' | 'cost'
/** Those with a column. */
export const MEASURES = ['duration', 'tokens', 'cost'] as const satisfies readonly Measure[]

const MEASURED: Record<Measure, (record: ComparedRecord) => number | null> = {
  duration: (record) => record.durationMs,
  inputTokens: ({ totals }) => totals.inputTokens,
  outputTokens: ({ totals }) => totals.outputTokens,
  tokens: ({ totals }) => totals.inputTokens + totals.outputTokens,
  cost: ({ totals }) => completeCost(totals),
}

/** The values of the left and the right record of a pair; null without a known value on both sides. */
export function valuesOf({ left, right }: RecordPair, measure: Measure): [number, number] | null {
  if (left === null || right === null) return null
  const [one, other] = [MEASURED[measure](left), MEASURED[measure](right)]
  return one === null || other === null ? null : [one, other]
}

/** Whether a record failed below a record that did not: its failure did not end the run. */
export function isHandled(row: DiffRow, side: 'left' | 'right'): boolean {
  if (row.pair[side]?.status !== 'failed') return false
  for (let each = row.parent; each; each = each.parent) {
    const ends = [each.pair, ...each.carried].filter(({ kind }) => ENDS.has(kind))
    if (ends.some(({ [side]: record }) => record?.status === 'succeeded')) return true
  }
  return false
}
/** Records that end after all records below them. */
const ENDS: ReadonlySet<Kind> = new Set(['plan', 'toolCall'])

/** The previous round of the same step, on one of the sides; null for the first. */
export function roundBefore(row: DiffRow, side: 'left' | 'right'): string | null {
  const siblings = row.parent?.children ?? []
  const before = siblings
    .slice(0, siblings.indexOf(row))
    .findLast(({ pair }) => pair.kind === 'thinkAct' && pair[side] !== null)
  return before?.pair[side]?.id ?? null
}

/** The plan that a step's row hangs under, on one of the sides. */
export function planIdOf(row: DiffRow, side: 'left' | 'right'): string | null {
  for (let each = row.parent; each; each = each.parent) {
    const plan = [each.pair, ...each.carried].find(({ kind }) => kind === 'plan')
    if (plan) return plan[side]?.id ?? null
  }
  return null
}
