import { expect, test } from 'vitest'
import type { PlanNode } from '../../api/shapes'
import { forestOf, nested, plan, step, toolCall } from './example-tree'
import { ancestors, isRecord, keyOf, openerOf, treeActivity, visibleRows, type Row } from './rows'

function outline(tops: readonly Row[], expanded: ReadonlySet<string>): string[] {
  return visibleRows(tops, expanded).map((row) => '  '.repeat(ancestors(row).length) + row.key)
}

test('the tree nests plan, step, think-act, tool call and sub-plan', () => {
  const forest = forestOf(nested())
  const everything = new Set(forest.byKey.keys())

  expect(outline(forest.tops, everything)).toEqual([
    'root',
    '  step',
    '    round',
    '      other',
    '      opener',
    '        sub',
    '          sub-step',
    '            inner',
  ])
})

test('only what hangs under open rows is visible', () => {
  const forest = forestOf(nested())

  expect(outline(forest.tops, new Set(['root', 'round']))).toEqual(['root', '  step'])
})

test('records without a known parent hang under a heading of their own', () => {
  const forest = forestOf(nested([toolCall('stray')]))

  expect(outline(forest.tops, new Set(['unplaced']))).toEqual(['root', 'unplaced', '  stray'])
})

test('two kinds of record with the same id are two rows', () => {
  const forest = forestOf(plan('same', { agentExecutions: [step('same')] }))

  expect([...forest.byKey.keys()]).toEqual(['same', 'step:same'])
  expect(keyOf(forest, 'step', 'same')).toBe('step:same')
  expect(keyOf(forest, 'plan', 'same')).toBe('same')
})

test('a sub-plan leads to the call that opened it', () => {
  const forest = forestOf(nested())
  const sub = forest.byKey.get('sub')
  const record = isRecord(sub) ? (sub.record as PlanNode) : null

  expect(openerOf(forest, record!)?.name).toBe('medication_check')
})

test('a plan nested a thousand deep is built and shown', () => {
  let top = plan('p1000')
  for (let depth = 999; depth >= 0; depth -= 1) {
    const call = toolCall(`c${depth}`, { subPlans: [top] })
    top = plan(`p${depth}`, { agentExecutions: [step(`s${depth}`, { toolCalls: [call] })] })
  }
  const forest = forestOf(top)

  expect(visibleRows(forest.tops, new Set(forest.byKey.keys()))).toHaveLength(3001)
})

test('a tree is active while anything in it runs, however deep', () => {
  const running = toolCall('call', { status: 'running' })
  const sub = plan('sub', { agentExecutions: [step('s', { toolCalls: [running] })] })
  const top = plan('root', { agentExecutions: [step('t', { subPlans: [sub] })] })

  expect(treeActivity(forestOf(top))).toBe('active')
})

test('missing and abandoned records leave a tree uncertain', () => {
  expect(treeActivity(forestOf(nested([toolCall('stray', { status: 'unknown' })])))).toBe(
    'uncertain',
  )
  expect(treeActivity(forestOf(plan('root', { status: 'abandoned' })))).toBe('uncertain')
})

test('a tree whose records all ended has ended', () => {
  expect(treeActivity(forestOf(nested()))).toBe('ended')
})
