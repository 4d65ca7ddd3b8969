import { expect, test } from 'vitest'
import type { PlanNode, RunChanges, TreeNode } from '../../api/shapes'
import { nested, plan, step, thinkAct, toolCall } from '../forest/example-tree'
import { buildForest, type Forest } from '../forest/rows'
import { fold, liveTree, topOf } from './live-tree'
import lines from './live-tree-cases.jsonl?raw'

interface Case {
  before: PlanNode
  messages: (RunChanges & { revision: number; tree: PlanNode })[]
}

/** Made by the real `build_tree`; tests/live_tree_cases.py writes them. */
const CASES = lines
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line) as Case)

function changes(...changed: TreeNode[]): RunChanges {
  return { changed, removed: [] }
}

test.each(CASES.map((each, number) => [number, each] as const))(
  'folded message by message, case %i is the tree that the server builds',
  (_, { before, messages }) => {
    const tree = liveTree(before)
    for (const message of messages) {
      fold(tree, message, message.revision)
      expect(topOf(tree)).toEqual(message.tree)
    }
  },
)

test.each(CASES.map((each, number) => [number, each] as const))(
  'folded all at once, case %i is the same',
  (_, { before, messages }) => {
    const tree = liveTree(structuredClone(before))
    for (const message of messages) fold(tree, message, message.revision)
    expect(topOf(tree)).toEqual(messages.at(-1)!.tree)
  },
)

function timesOf(forest: Forest) {
  return [...forest.byKey].map(([key, { span, extent }]) => [key, span, extent])
}

test.each(CASES.map((each, number) => [number, each] as const))(
  'the rows that case %i leaves as they are say when all below them took place',
  (_, { before, messages }) => {
    const tree = liveTree(structuredClone(before))
    let forest = buildForest(topOf(tree))
    for (const message of messages) {
      fold(tree, message, message.revision)
      forest = buildForest(topOf(tree), forest)
      expect(timesOf(forest)).toEqual(timesOf(buildForest(structuredClone(topOf(tree)))))
    }
  },
)

test('the cases have what is hard: circles, removals, late parents, one id in several kinds', () => {
  const all = CASES.flatMap(({ messages }) => messages)
  const circular = CASES.filter(({ messages }) =>
    messages.some(({ tree }) => liveTree(structuredClone(tree)).circular),
  )
  expect(circular.length).toBeGreaterThan(3)
  expect(all.filter(({ removed }) => removed.length > 0).length).toBeGreaterThan(10)
  expect(all.filter(({ tree }) => tree.unplaced!.length > 0).length).toBeGreaterThan(10)
})

test('a message that says nothing new is left out', () => {
  const tree = liveTree({ ...nested(), revision: 5 })
  const top = topOf(tree)
  fold(tree, changes(plan('root', { title: 'An older one' })), 5)

  expect(topOf(tree)).toBe(top)
})

test('only what changed and what is above it is another object', () => {
  const rounds = [thinkAct('one', { stepId: 's', toolCalls: [toolCall('call')] }), thinkAct('two')]
  const before = plan('root', { agentExecutions: [step('s', { thinkActs: rounds }), step('t')] })
  const tree = liveTree(before)
  fold(tree, changes(thinkAct('one', { stepId: 's', status: 'failed' })), 2)

  const [first, second] = topOf(tree).agentExecutions
  expect(first).not.toBe(before.agentExecutions[0])
  expect(second).toBe(before.agentExecutions[1])
  expect(first!.thinkActs[0]!.status).toBe('failed')
  expect(first!.thinkActs[0]!.toolCalls[0]).toBe(rounds[0]!.toolCalls[0])
  expect(first!.thinkActs[1]).toBe(rounds[1])
})

test('after thousands of messages about the same records the tree is no larger', () => {
  const tree = liveTree(nested())
  for (let revision = 2; revision < 3_000; revision += 1) {
    const parent = revision % 2 ? 'step' : 'sub-step'
    fold(tree, changes(toolCall('moves', { stepId: parent })), revision)
    topOf(tree)
  }
  expect(tree.branches.size).toBe(9)
  expect([...tree.naming.values()].reduce((sum, each) => sum + each.size, 0)).toBeLessThan(20)
})
