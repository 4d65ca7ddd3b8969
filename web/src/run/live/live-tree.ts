/**
 * A run's tree while it changes: what the run's stream tells is folded into the tree that was read,
 * and comes out as `tracer.lineage.tree.build_tree` would build it. Only the nodes that a change touches,
 * and those above them, are made anew; all others stay the same objects.
 */
import type { Kind, PlanNode, RunChanges, TreeNode } from '../../api/shapes'
import { childRecords, recordId, unplacedRecords } from '../forest/rows'
import { addTotals, totals } from './totals'

/** A record in its place. */
interface Branch {
  kind: Kind
  id: string
  /** The record with all below it, to be made anew where `stale`. */
  node: TreeNode
  stale: boolean
  parent: Branch | null
  /** What is right below it, in order. */
  below: Branch[]
  /** How many sub-plans it and what is below it in its own plan opened. */
  opened: number
}

export interface LiveTree {
  root: Branch
  revision: number
  /** By kind and id. */
  branches: Map<string, Branch>
  /** For each place that a record names as a parent of its own, there or not: those that do. */
  naming: Map<string, Set<Branch>>
  /** What has no known parent, in order. */
  loose: Branch[]
  /** Whether records name each other as parents in a circle, which had to be cut. */
  circular: boolean
}

/** Takes a tree over as the API gave it. */
export function liveTree(top: PlanNode): LiveTree {
  const root = branchOf(top, null)
  const tree: LiveTree = {
    root,
    revision: top.revision ?? 0,
    branches: new Map(),
    naming: new Map(),
    loose: unplacedRecords(top).map((node) => branchOf(node, null)),
    circular: false,
  }
  const walked: Branch[] = []
  const waiting = [root, ...tree.loose]
  for (let branch = waiting.pop(); branch; branch = waiting.pop()) {
    const parent = branch
    walked.push(branch)
    tree.branches.set(placeOf(branch), branch)
    remember(tree, branch)
    branch.below = childRecords(branch.node).map((node) => branchOf(node, parent))
    for (const child of branch.below) waiting.push(child)
  }
  for (const branch of walked.reverse()) branch.opened = countOpened(branch)
  tree.circular = tree.loose.some((branch) => parentOf(tree, branch) !== null)
  return tree
}

/** Folds a message of the stream in; one that says nothing new is left out. */
export function fold(tree: LiveTree, changes: RunChanges, revision: number): void {
  if (revision <= tree.revision) return
  for (const { kind, id } of changes.removed) remove(tree, `${kind}:${id}`)
  for (const record of changes.changed) put(tree, record as TreeNode)
  if (tree.circular) hangAnew(tree)
  tree.revision = revision
  tree.root.stale = true
}

/** Returns the tree as it is now, like one that was read. */
export function topOf(tree: LiveTree): PlanNode {
  if (!tree.root.stale) return tree.root.node as PlanNode
  const walked: Branch[] = []
  const waiting = [tree.root, ...tree.loose].filter((branch) => branch.stale)
  for (let branch = waiting.pop(); branch; branch = waiting.pop()) {
    walked.push(branch)
    for (const child of branch.below) if (child.stale) waiting.push(child)
  }
  for (const branch of walked.reverse()) renew(tree, branch)
  const top = tree.root.node as PlanNode
  top.revision = tree.revision
  top.unplaced = tree.loose.map((branch) => branch.node)
  if (tree.loose.length > 0) {
    top.cumulative = { ...top.cumulative }
    for (const branch of tree.loose) addTotals(top.cumulative, branch.node.cumulative)
  }
  return top
}

function branchOf(node: TreeNode, parent: Branch | null): Branch {
  const { kind } = node
  return { kind, id: recordId(node), node, stale: false, parent, below: [], opened: 0 }
}

function placeOf(branch: Branch): string {
  return `${branch.kind}:${branch.id}`
}

/** The places that a record names as its parent, of which the first that is there holds. */
function namedParents(node: TreeNode): string[] {
  const named: [Kind, string | null][] = []
  if (node.kind === 'plan') {
    named.push(['toolCall', node.toolCallId], ['step', node.openedByStepId])
  } else if (node.kind === 'step') named.push(['plan', node.planId])
  else if (node.kind === 'thinkAct') named.push(['step', node.stepId])
  else {
    named.push(['toolCall', node.parentToolCallId], ['thinkAct', node.thinkActId])
    named.push(['step', node.stepId])
  }
  return named.filter(([, id]) => id !== null).map(([kind, id]) => `${kind}:${id}`)
}

function parentOf(tree: LiveTree, branch: Branch): Branch | null {
  if (branch === tree.root) return null
  for (const place of namedParents(branch.node)) {
    const parent = tree.branches.get(place)
    if (parent) return parent
  }
  return null
}

function remember(tree: LiveTree, branch: Branch) {
  for (const place of namedParents(branch.node)) {
    const known = tree.naming.get(place)
    if (known) known.add(branch)
    else tree.naming.set(place, new Set([branch]))
  }
}

function forget(tree: LiveTree, branch: Branch) {
  for (const place of namedParents(branch.node)) {
    const known = tree.naming.get(place)
    known?.delete(branch)
    if (known?.size === 0) tree.naming.delete(place)
  }
}

function put(tree: LiveTree, record: TreeNode) {
  const place = `${record.kind}:${recordId(record)}`
  const known = tree.branches.get(place)
  const branch = known ?? branchOf(record, null)
  if (known) {
    forget(tree, known)
    takeOut(tree, known)
    known.node = record
  }
  tree.branches.set(place, branch)
  remember(tree, branch)
  hang(tree, branch)
  // What came before its parent moves to it, and a plan says what opened it.
  if (known && record.kind !== 'toolCall') return
  for (const each of [...(tree.naming.get(place) ?? [])]) move(tree, each)
}

function remove(tree: LiveTree, place: string) {
  const branch = tree.branches.get(place)
  if (!branch || branch === tree.root) return
  forget(tree, branch)
  takeOut(tree, branch)
  tree.branches.delete(place)
  for (const each of [...(tree.naming.get(place) ?? [])]) move(tree, each)
}

function move(tree: LiveTree, branch: Branch) {
  takeOut(tree, branch)
  hang(tree, branch)
}

function takeOut(tree: LiveTree, branch: Branch) {
  if (branch === tree.root) return
  const siblings = branch.parent?.below ?? tree.loose
  const index = siblings.indexOf(branch)
  if (index >= 0) siblings.splice(index, 1)
  outdate(branch.parent)
  branch.parent = null
}

function hang(tree: LiveTree, branch: Branch) {
  outdate(branch)
  if (branch === tree.root) return
  const parent = parentOf(tree, branch)
  for (let above = parent; above; above = above.parent) {
    if (above !== branch) continue
    tree.circular = true
    return
  }
  branch.parent = parent
  const siblings = parent?.below ?? tree.loose
  siblings.splice(placeAmong(siblings, branch), 0, branch)
  outdate(parent)
}

/** Marks a branch and all above it; above a marked one all are. */
function outdate(branch: Branch | null) {
  for (let each = branch; each && !each.stale; each = each.parent) each.stale = true
}

const RANKS: Record<Kind, number> = { step: 0, thinkAct: 1, toolCall: 2, plan: 3 }

/** By kind, position and id; without a position last. */
function compare(one: Branch, other: Branch): number {
  if (one.kind !== other.kind) return RANKS[one.kind] - RANKS[other.kind]
  const [left, right] = [one.node.position ?? Infinity, other.node.position ?? Infinity]
  if (left !== right) return left < right ? -1 : 1
  return one.id < other.id ? -1 : 1
}

/** Where among siblings in order a branch has its place. */
function placeAmong(siblings: readonly Branch[], branch: Branch): number {
  let [from, to] = [0, siblings.length]
  while (from < to) {
    const middle = (from + to) >> 1
    if (compare(siblings[middle]!, branch) < 0) from = middle + 1
    else to = middle
  }
  return from
}

/** Hangs everything from nothing, and cuts each circle where `build_tree` does. */
function hangAnew(tree: LiveTree) {
  const branches = [...tree.branches.values()].sort(compare)
  tree.loose = []
  for (const branch of branches) {
    branch.below = []
    branch.stale = true
  }
  for (const branch of branches) {
    branch.parent = parentOf(tree, branch)
    if (branch !== tree.root) (branch.parent?.below ?? tree.loose).push(branch)
  }
  const reached = new Set<Branch>()
  reach(reached, [tree.root, ...tree.loose])
  tree.circular = reached.size < branches.length
  // Plans first, as `build_tree` looks for them.
  const plans = branches.filter((branch) => branch.kind === 'plan')
  for (const branch of [...plans, ...branches]) {
    if (reached.has(branch)) continue
    const climbed = new Set<Branch>()
    let top = branch
    while (!climbed.has(top)) {
      climbed.add(top)
      top = top.parent!
    }
    top.parent!.below = top.parent!.below.filter((each) => each !== top)
    top.parent = null
    tree.loose.push(top)
    reach(reached, [top])
  }
}

function reach(reached: Set<Branch>, tops: readonly Branch[]) {
  const waiting = [...tops]
  for (let branch = waiting.pop(); branch; branch = waiting.pop()) {
    reached.add(branch)
    for (const child of branch.below) waiting.push(child)
  }
}

/** Makes a branch's node anew from its record and the nodes below it. */
function renew(tree: LiveTree, branch: Branch) {
  const { node, below } = branch
  const plans = below.filter((child) => child.kind === 'plan').map((child) => child.node)
  const within = below.filter((child) => child.kind !== 'plan').map((child) => child.node)
  const parts: Partial<Record<string, unknown>> = {}
  if (node.kind === 'plan') {
    parts['agentExecutions'] = within
    parts['parentActToolCall'] = openedBy(tree, node)
    parts['subPlanCount'] = below.reduce((sum, child) => sum + child.opened, 0)
  } else {
    parts['toolCalls'] = within.filter((child) => child.kind === 'toolCall')
  }
  if (node.kind === 'step') parts['thinkActs'] = within.filter((child) => child.kind === 'thinkAct')
  if (node.kind === 'step' || node.kind === 'toolCall') {
    parts['subPlans'] = plans
    parts['subPlanCount'] = plans.length
  }
  branch.opened = countOpened(branch)
  branch.node = { ...node, ...parts, ...totals(node, within, plans) } as TreeNode
  branch.stale = false
}

function countOpened(branch: Branch): number {
  if (branch.kind === 'plan') return 0
  return branch.below.reduce((sum, child) => sum + (child.kind === 'plan' ? 1 : child.opened), 0)
}

function openedBy(tree: LiveTree, plan: PlanNode): PlanNode['parentActToolCall'] {
  const call = tree.branches.get(`toolCall:${plan.toolCallId}`)?.node
  if (call?.kind !== 'toolCall') return null
  const { toolCallId, name, arguments: given, status } = call
  return { toolCallId, name, arguments: given, status }
}
