import { expect, test } from 'vitest'
import { forestOf, plan, step, thinkAct, toolCall } from '../forest/example-tree'

import { isCritical } from './critical-path'

function ran(start: number, end: number | null) {
  const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 12, 0, second)).toISOString()
  return {
    startedAt: at(start),
    finishedAt: end === null ? null : at(end),
    status: end === null ? ('running' as const) : ('succeeded' as const),
  }
}

function pathOf(tree: ReturnType<typeof plan>): string[] {
  const rows = [...forestOf(tree).byKey.values()]
  return rows
    .filter(isCritical)
    .map((row) => row.key)
    .sort()
}

test('of parallel calls the one that ended last is on the path', () => {
  const calls = [toolCall('short', ran(1, 3)), toolCall('long', ran(1, 8))]
  const round = thinkAct('round', { ...ran(0, 1), toolCalls: calls })
  const tree = plan('root', {
    ...ran(0, 9),
    agentExecutions: [step('step', { ...ran(0, 9), thinkActs: [round] })],
  })

  expect(pathOf(tree)).toEqual(['long', 'root', 'round', 'step'])
})

test('what came one after the other is all on the path, down into sub-plans', () => {
  const sub = plan('sub', { ...ran(4, 8), agentExecutions: [step('inner', ran(4, 8))] })
  const tree = plan('root', {
    ...ran(0, 10),
    agentExecutions: [
      step('first', ran(0, 3)),
      step('beside', ran(0, 2)),
      step('second', {
        ...ran(3, 9),
        toolCalls: [toolCall('call', { ...ran(3, 9), subPlans: [sub] })],
      }),
    ],
  })

  expect(pathOf(tree)).toEqual(['call', 'first', 'inner', 'root', 'second', 'sub'])
})

test('of what still runs the path takes what began first', () => {
  const calls = [toolCall('late', ran(5, null)), toolCall('early', ran(2, null))]
  const tree = plan('root', {
    ...ran(0, null),
    agentExecutions: [step('step', { ...ran(0, null), toolCalls: calls })],
  })

  expect(pathOf(tree)).toEqual(['early', 'root', 'step'])
})

test('what took no time, or has no time, is not on the path', () => {
  const calls = [
    toolCall('instant', ran(3, 3)),
    toolCall('untimed', { startedAt: null, finishedAt: null, status: 'pending' }),
  ]
  const tree = plan('root', {
    ...ran(0, 9),
    agentExecutions: [step('step', { ...ran(0, 9), toolCalls: calls })],
  })

  expect(pathOf(tree)).toEqual(['root', 'step'])
  expect(pathOf(plan('root', { startedAt: null, finishedAt: null, unplaced: calls }))).toEqual([])
})

test('a plan nested a thousand deep has a path', () => {
  let top = plan('p1000', ran(0, 9))
  for (let depth = 999; depth >= 0; depth -= 1) {
    const call = toolCall(`c${depth}`, { ...ran(0, 9), subPlans: [top] })
    top = plan(`p${depth}`, {
      ...ran(0, 9),
      agentExecutions: [step(`s${depth}`, { ...ran(0, 9), toolCalls: [call] })],
    })
  }

  expect(pathOf(top)).toHaveLength(3001)
})
