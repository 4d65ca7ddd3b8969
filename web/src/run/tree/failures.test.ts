import { expect, test } from 'vitest'
import { nested, plan, step, toolCall } from '../forest/example-tree'
import { buildForest, visibleRows } from '../forest/rows'
import { countsBelow, failures, inOrder, neighbour } from './failures'

function wrong() {
  const calls = [
    toolCall('fine'),
    toolCall('bad', { status: 'failed' }),
    toolCall('silent', { status: 'abandoned' }),
  ]
  return buildForest(
    plan('root', {
      status: 'failed',
      agentExecutions: [
        step('step', { status: 'failed', toolCalls: calls }),
        step('limit', { status: 'failed', reason: 'round_limit' }),
      ],
    }),
  )
}

test('failures are calls and rounds that went wrong, and what failed without any such', () => {
  expect(failures(inOrder(wrong())).map((row) => row.key)).toEqual(['bad', 'silent', 'limit'])
})

test('a call that failed because of its sub-plan is a failure like the one in it', () => {
  const inner = toolCall('inner', { status: 'failed' })
  const sub = plan('sub', {
    status: 'failed',
    agentExecutions: [step('s', { toolCalls: [inner] })],
  })
  const call = toolCall('call', { status: 'failed', subPlans: [sub] })
  const forest = buildForest(plan('root', { agentExecutions: [step('t', { toolCalls: [call] })] }))

  expect(failures(inOrder(forest)).map((row) => row.key)).toEqual(['call', 'inner'])
})

test('every row above a failure says how many are below it', () => {
  const counts = countsBelow(failures(inOrder(wrong())))

  expect(counts).toEqual(
    new Map([
      ['step', 2],
      ['root', 3],
    ]),
  )
})

test('the order of all rows is that of a tree with everything open', () => {
  const forest = buildForest(nested([toolCall('stray')]))

  expect(inOrder(forest)).toEqual(visibleRows(forest.tops, new Set(forest.byKey.keys())))
})

test('next and previous go round, from whichever row', () => {
  const forest = wrong()
  const order = new Map(inOrder(forest).map((row, index) => [row.key, index]))
  const from = (key: string | null, direction: 1 | -1) =>
    neighbour(order, failures(inOrder(forest)), key, direction)?.key

  expect([from(null, 1), from('fine', 1), from('bad', 1), from('limit', 1)]).toEqual([
    'bad',
    'bad',
    'silent',
    'bad',
  ])
  expect([from('limit', -1), from('bad', -1)]).toEqual(['silent', 'limit'])
  expect(neighbour(order, [], 'root', 1)).toBeNull()
})
