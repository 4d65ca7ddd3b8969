// @vitest-environment happy-dom
import { expect, test } from 'vitest'
import type { PlanNode, ToolCallNode } from '../../api/shapes'
import { forestOf, plan, step, thinkAct, toolCall } from '../forest/example-tree'
import { mountInRun } from '../forest/mounting'

import TreeRow from './tree-row.vue'

function show(fields: Partial<ToolCallNode>, props = {}) {
  return showRow('call', plan('root', { unplaced: [toolCall('call', fields)] }), props)
}

function showRow(key: string, tree: PlanNode, props = {}) {
  const row = forestOf(tree).byKey.get(key)
  return mountInRun(
    TreeRow,
    {
      row,
      level: 2,
      expanded: false,
      deeper: false,
      failures: 0,
      hits: 0,
      failed: null,
      share: 0,
      ...props,
    },
    tree,
  )
}

test('unusual properties of a record are marked and explained', async () => {
  for (const [fields, mark, words] of [
    [{ inferred: true, inferredFrom: 'its time' }, 'inferred', 'inferred from its time'],
    [{ inferred: true }, 'inferred', 'inferred from other records'],
    [{ status: 'abandoned' }, 'abandoned', 'stopped sending heartbeats'],
    [{ status: 'unknown' }, 'unknown', 'has not arrived yet'],
    [{ attempt: 3 }, '×3', 'Attempt'],
    [{ stillRunning: true }, 'still running', 'cannot be stopped'],
  ] as const) {
    const shown = (await show(fields)).get('.reason')
    expect(shown.text()).toBe(mark)
    expect(shown.attributes('title')).toContain(words)
  }
  expect((await show({})).find('.reason').exists()).toBe(false)
})

test('a call whose agent continues after it is marked as running in the background', async () => {
  const opened = plan('agent', { status: 'running', toolCallId: 'call' })
  for (const [status, mark] of [
    ['succeeded', true],
    ['running', false],
  ] as const) {
    const call = toolCall('call', { status, subPlans: [opened] })
    const row = await showRow('call', plan('root', { unplaced: [call] }))
    expect(row.text().includes('running in the background')).toBe(mark)
  }
})

test('a failed row shows the message of its error, or else its type', async () => {
  for (const error of [
    { type: null, message: 'the cuff is loose', stack: null },
    { type: 'the cuff is loose', message: null, stack: null },
  ]) {
    const call = toolCall('call', { status: 'failed', error })
    const round = thinkAct('round', { status: 'failed', thought: null, error })
    const agent = step('step', { thinkActs: [round], toolCalls: [call] })
    for (const key of ['call', 'round']) {
      const row = await showRow(key, plan('root', { agentExecutions: [agent] }))
      expect(row.text()).toContain('the cuff is loose')
    }
  }
})

test('a closed row says how many failures and hits are below it', async () => {
  const text = (await show({}, { failures: 1, hits: 1200 })).text()

  expect(text).toContain('1 failure below')
  expect(text).toContain('1200 hits below')
})

test('an LLM call shows its own tokens and cost, other rows those of everything below', async () => {
  const subAgent = plan('sub', {
    parentPlanId: 'root',
    agentExecutions: [step('sub-step', { thinkActs: [thinkAct('inner')] })],
  })
  const opener = toolCall('opener', { subPlans: [subAgent] })
  const rounds = [thinkAct('round', { costUsd: 0.002, toolCalls: [opener] })]
  const tree = plan('root', { agentExecutions: [step('step', { thinkActs: rounds })] })
  const figures = async (key: string) => {
    const row = await showRow(key, tree)
    return [row.get('.tokens').text(), row.get('.cost').text()]
  }

  expect(await figures('round')).toEqual(['160', '$0.0020'])
  expect(await figures('opener')).toEqual(['160', '$0.0004'])
  expect(await figures('root')).toEqual(['320', '$0.0024'])
})

test('the icon of a status has its word, and a sentence if that is not enough', async () => {
  const titleOf = async (status: ToolCallNode['status']) =>
    (await show({ status })).get('.mark[title]').attributes('title')

  expect(await titleOf('cancelled')).toBe('cancelled')
  expect(await titleOf('abandoned')).toMatch(/^abandoned: The recording process stopped/)
})
