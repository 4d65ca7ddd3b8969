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
      places: new Map(),
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
  const opened = plan('agent', { status: 'running', finishedAt: null, toolCallId: 'call' })
  for (const [status, mark] of [
    ['succeeded', true],
    ['running', false],
  ] as const) {
    const call = toolCall('call', { status, subPlans: [opened] })
    const row = await showRow('call', plan('root', { unplaced: [call] }))
    expect(row.text().includes('running in the background')).toBe(mark)
  }
})

/** A time so many seconds after the start of the examples. */
function at(seconds: number): string {
  return new Date(Date.parse('2026-11-21T22:21:52Z') + seconds * 1000).toISOString()
}

test('an agent that worked after its call shows when it ran relative to the call', async () => {
  const times = { startedAt: at(0), finishedAt: at(2) }
  const call = toolCall('call', {
    ...times,
    subPlans: [plan('agent', { toolCallId: 'call', startedAt: at(1), finishedAt: at(9) })],
  })
  const row = await showRow('call', plan('root', { unplaced: [call] }))
  expect(row.text()).toContain('background 1s–9s')
  expect(row.get('.reason').attributes('title')).toContain('from 1s to 9s')
})

test('a part begins with how long after its call or run it began, and by which process', async () => {
  const before = plan('root', { planId: 'root', startedAt: at(0), finishedAt: at(10) })
  const parts: [object, string][] = [
    [{ isInside: false, isByOtherProcess: true }, 'continued 14h 0m later by another process'],
    [{ isInside: false, isByOtherProcess: false }, 'continued 14h 0m later'],
    [{ isInside: true, isByOtherProcess: false }, 'joined 14h 0m after the start'],
  ]
  for (const [fields, text] of parts) {
    const continues = { rootPlanId: 'root', inferredFrom: null, ...fields } as never
    const from = 14 * 3600 + ('isInside' in fields && fields.isInside ? 0 : 2)
    const part = plan('part', { toolCallId: 'call', continues, startedAt: at(from) })
    const call = toolCall('call', { startedAt: at(0), finishedAt: at(2), subPlans: [part] })
    const agent = step('step', { toolCalls: [call] })
    const row = await showRow('part', { ...before, agentExecutions: [agent] })
    expect(row.get('.boundary').text()).toBe(text)
  }
})

test('a part without a call counts from the end of the run that it continues', async () => {
  const continues = {
    ...{ rootPlanId: 'root', inferredFrom: null },
    ...{ isInside: false, isByOtherProcess: false },
  }
  const part = plan('part', { openedByStepId: 'step', continues, startedAt: at(70) })
  const agent = step('step', { subPlans: [part] })
  const tree = plan('root', { startedAt: at(0), finishedAt: at(10), agentExecutions: [agent] })
  expect((await showRow('part', tree)).get('.boundary').text()).toBe('continued 1m 0s later')
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

test('an LLM call shows its own cost, other rows those of everything below', async () => {
  const subAgent = plan('sub', {
    parentPlanId: 'root',
    agentExecutions: [step('sub-step', { thinkActs: [thinkAct('inner')] })],
  })
  const opener = toolCall('opener', { subPlans: [subAgent] })
  const rounds = [thinkAct('round', { costUsd: 0.002, toolCalls: [opener] })]
  const tree = plan('root', { agentExecutions: [step('step', { thinkActs: rounds })] })
  const costOf = async (key: string) => (await showRow(key, tree)).get('.cost').text()

  expect(await costOf('round')).toBe('$0.00200')
  expect(await costOf('opener')).toBe('$0.00040')
  expect(await costOf('root')).toBe('$0.00240')
})

test('the icon of a status has its word, and a sentence if that is not enough', async () => {
  const titleOf = async (status: ToolCallNode['status']) =>
    (await show({ status })).get('.mark[title]').attributes('title')

  expect(await titleOf('cancelled')).toBe('cancelled')
  expect(await titleOf('abandoned')).toMatch(/^abandoned: The recording process stopped/)
})

test('the line of a row has no marks of Markdown, and an arrow in the direction of its text', async () => {
  const show = (title: string, summary: string) => showRow('root', plan('root', { title, summary }))

  expect((await show('Sum', '## Total\n**13.37 EUR**')).get('.excerpt').text()).toBe(
    'Sum → Total 13.37 EUR',
  )
  expect((await show('أين أموالي؟', '**تم**')).get('.excerpt').text()).toBe('أين أموالي؟ ← تم')
})
