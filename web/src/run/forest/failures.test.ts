import { expect, test } from 'vitest'
import { forestOf, nested, plan, step, toolCall } from './example-tree'
import type { PlanNode } from '../../api/shapes'
import { mergeRows } from './merged-rows'
import { visibleRows, type RecordRow } from './rows'
import { countsBelow, failures, hasErrorOf, inheritedFrom, neighbour, originOf } from './failures'

function wrong() {
  const calls = [
    toolCall('fine'),
    toolCall('bad', { status: 'failed' }),
    toolCall('silent', { status: 'abandoned' }),
  ]
  return forestOf(
    plan('root', {
      status: 'failed',
      agentExecutions: [
        step('step', { status: 'failed', toolCalls: calls }),
        step('limit', { status: 'failed', reason: 'round_limit' }),
      ],
    }),
  )
}

/** A run of three agents whose innermost call failed. */
function twoAgentsDown(
  status: 'failed' | 'succeeded' = 'failed',
  slipEnd = '2026-11-21T22:21:53Z',
) {
  const failed = { status: 'failed' } as const
  const origin = toolCall('http_get', { ...failed, startedAt: '2026-11-21T22:21:53Z' })
  const bank = plan('bank', {
    ...failed,
    agentExecutions: [step('s3', { ...failed, toolCalls: [origin] })],
  })
  const askBank = toolCall('ask_bank', { ...failed, subPlans: [bank] })
  const ledger = plan('ledger', {
    ...failed,
    agentExecutions: [step('s2', { ...failed, toolCalls: [askBank] })],
  })
  const finishedAt = '2026-11-21T22:21:54Z'
  const askLedger = toolCall('ask_ledger', { ...failed, finishedAt, subPlans: [ledger] })
  const slip = toolCall('slip', { ...failed, finishedAt: slipEnd })
  return forestOf(
    plan('root', {
      status,
      agentExecutions: [step('s1', { status, toolCalls: [slip, askLedger] })],
    }),
  )
}

test('a failure counts once, at the record where it began', () => {
  expect(failures(wrong().all).map(({ row }) => row.key)).toEqual(['bad', 'silent', 'limit'])
  const deep = twoAgentsDown()
  expect(failures(deep.all).map(({ row }) => row.key)).toEqual(['slip', 'http_get'])
  expect(deep.tops[0]!.cumulative.failures).toBe(2)
  expect(deep.tops[0]!.own.failures).toBe(1)
})

test('a failed record is the origin of its failure although a call below it was abandoned', () => {
  const lost = toolCall('lost', { status: 'abandoned' })
  const root = (status: 'failed' | 'abandoned') =>
    forestOf(
      plan('root', { status, agentExecutions: [step('step', { status, toolCalls: [lost] })] }),
    )

  expect(failures(root('failed').all).map(({ row }) => row.key)).toEqual(['step', 'lost'])
  expect(originOf(root('failed'), failures(root('failed').all))?.row.key).toBe('step')
  expect(failures(root('abandoned').all).map(({ row }) => row.key)).toEqual(['lost'])
})

test('a failure is handled if a record above it ended without failing', () => {
  const failed = { status: 'failed' } as const
  const slip = toolCall('slip', failed)
  const isHandled = (
    root: PlanNode['status'],
    above: Parameters<typeof step>[1] = { status: 'failed', toolCalls: [slip] },
  ) => {
    const forest = forestOf(plan('root', { status: root, agentExecutions: [step('step', above)] }))
    return failures(forest.all).map((each) => each.isHandled)
  }
  const handedOver = plan('next', { ...failed, agentExecutions: [step('last', failed)] })

  expect(isHandled('failed')).toEqual([false])
  expect(isHandled('succeeded')).toEqual([true])
  expect(isHandled('cancelled')).toEqual([true])
  expect(isHandled('running')).toEqual([false])
  expect(isHandled('failed', { status: 'cancelled', toolCalls: [slip] })).toEqual([true])
  expect(isHandled('failed', { status: 'running', toolCalls: [slip] })).toEqual([true])
  expect(isHandled('failed', { status: 'succeeded', subPlans: [handedOver] })).toEqual([false])
})

test('the origin of a failed run is the failure that ended last, which merged rows keep', () => {
  for (const forest of [twoAgentsDown(), mergeRows(twoAgentsDown())]) {
    const origin = originOf(forest, failures(forest.all))!
    expect([origin.row.key, origin.depth, origin.isHandled]).toEqual(['http_get', 2, false])
  }
  const slipped = twoAgentsDown('failed', '2026-11-21T22:21:55Z')
  expect(originOf(slipped, failures(slipped.all))?.row.key).toBe('slip')
})

test('a run that succeeded has handled failures and no origin', () => {
  const forest = twoAgentsDown('succeeded')
  const found = failures(forest.all)

  expect(found.map(({ isHandled }) => isHandled)).toEqual([true, true])
  expect(originOf(forest, found)).toBeNull()
})

test('every ancestor of a failure shows the number of failures below', () => {
  const counts = countsBelow(failures(wrong().all).map(({ row }) => row))

  expect(counts).toEqual(
    new Map([
      ['step', 2],
      ['root', 3],
    ]),
  )
})

test('the order of all rows is that of a tree with everything open', () => {
  const forest = forestOf(nested([toolCall('stray')]))

  expect(forest.all).toEqual(visibleRows(forest.tops, new Set(forest.byKey.keys())))
})

test('next and previous go round, from whichever row', () => {
  const forest = wrong()
  const order = new Map(forest.all.map((row, index) => [row.key, index]))
  const from = (key: string | null, direction: 1 | -1) =>
    neighbour(
      order,
      failures(forest.all).map(({ row }) => row),
      key,
      direction,
    )?.key

  expect([from(null, 1), from('fine', 1), from('bad', 1), from('limit', 1)]).toEqual([
    'bad',
    'bad',
    'silent',
    'bad',
  ])
  expect([from('limit', -1), from('bad', -1)]).toEqual(['silent', 'limit'])
  expect(neighbour(order, [], 'root', 1)).toBeNull()
})

test('a failed record inherits the failure of the record below it that has its error', () => {
  const failed = (message: string) => ({
    status: 'failed' as const,
    error: { type: 'ToolError', message, stack: null },
  })
  const calls = [toolCall('slip', failed('no page')), toolCall('http_get', failed('timed out'))]
  const sub = plan('sub', {
    ...failed('http_get: timed out'),
    agentExecutions: [step('sub-step', { ...failed('timed out'), toolCalls: calls })],
  })
  const opener = toolCall('opener', { ...failed('10 rounds'), subPlans: [sub] })
  // The run continued, but the records below failed nevertheless.
  const { byKey } = forestOf(plan('root', { unplaced: [opener] }))
  const row = (key: string) => byKey.get(key) as RecordRow

  expect(inheritedFrom(row('sub'))?.key).toBe('http_get')
  expect(hasErrorOf(row('sub'), row('http_get'))).toBe(true)
  expect(inheritedFrom(row('opener'))?.key).toBe('slip')
  expect(hasErrorOf(row('opener'), row('slip'))).toBe(false)
  expect([inheritedFrom(row('http_get')), inheritedFrom(row('root'))]).toEqual([null, null])
})

test('a failure that an agent below handled is not inherited', () => {
  const handled = plan('sub', {
    unplaced: [],
    agentExecutions: [step('sub-step', { toolCalls: [toolCall('slip', { status: 'failed' })] })],
  })
  const calls = [toolCall('opener', { subPlans: [handled] })]
  const { byKey } = forestOf(
    plan('root', { status: 'failed', agentExecutions: [step('step', { toolCalls: calls })] }),
  )

  expect(inheritedFrom(byKey.get('root') as RecordRow)).toBeNull()
})
