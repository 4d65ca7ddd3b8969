// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { forestOf, nested, plan, step, toolCall } from '../forest/example-tree'
import { until } from '../../ui/mounting'
import { mountInRun } from '../forest/mounting'

import RecordDetails from './record-details.vue'

// The rest of a record comes from a server, which is away unless a test has its own answers.
beforeEach(() => vi.stubGlobal('fetch', () => Promise.reject(new TypeError('no server'))))
afterEach(() => vi.unstubAllGlobals())

function detailsOf(key: string, tree = nested(), language: 'en' | 'zh-CN' = 'en') {
  const row = forestOf(tree).byKey.get(key)
  return mountInRun(RecordDetails, { row, together: [] }, tree, language)
}

function targets(page: Awaited<ReturnType<typeof detailsOf>>): Record<string, string> {
  const links = page.findAll('a').map((link) => [link.text(), link.attributes('href') ?? ''])
  return Object.fromEntries(links)
}

test('a sub-plan says which tool call triggered it, with its parameters, and leads to it', async () => {
  const page = await detailsOf('sub')

  expect(page.text()).toContain('Triggered by tool: medication_check')
  expect(page.text()).toContain('"patient": "p-1"')
  expect(targets(page)['Go to the tool call']).toBe('/runs/root?select=opener')
})

test('a sub-plan speaks Chinese too', async () => {
  expect((await detailsOf('sub', nested(), 'zh-CN')).text()).toContain(
    '由工具触发：medication_check',
  )
})

test('a tool call leads to the sub-plans that it opened', async () => {
  const page = await detailsOf('opener')

  expect(page.text()).toContain('Sub-agents it opened')
  expect(targets(page)['planner']).toBe('/runs/root?select=sub')
})

test('the breadcrumbs name the agents, and the way of the last one to the record', async () => {
  const page = await detailsOf('inner')
  const names = page.findAll('nav a').map((link) => link.text())

  expect(names).toEqual(['planner', 'planner', 'agent sub-step'])
  expect(page.get('nav [aria-current=true]').text()).toBe('tool_inner')
})

test('the breadcrumbs of a deep record fold the agents between until they are wanted', async () => {
  let inner = plan('agent-6', { agentName: 'agent 6', agentExecutions: [step('last')] })
  for (let number = 5; number >= 0; number -= 1) {
    const call = toolCall(`call-${number}`, { subPlans: [inner] })
    const agentExecutions = [step(`step-${number}`, { toolCalls: [call] })]
    inner = plan(`agent-${number}`, { agentName: `agent ${number}`, agentExecutions })
  }
  const page = await detailsOf('last', inner)
  const names = () => page.findAll('nav a').map((link) => link.text())

  expect(names()).toEqual(['agent 0', 'agent 6'])
  expect(page.get('nav button').text()).toContain('5 agents between')
  await page.get('nav button').trigger('click')
  expect(names()).toHaveLength(7)
})

test('a hand-off leads to the step that made it', async () => {
  const handedOff = plan('sub', { parentPlanId: 'root', openedByStepId: 'step' })
  const tree = plan('root', { agentExecutions: [step('step', { subPlans: [handedOff] })] })
  const page = await detailsOf('sub', tree)

  expect(page.text()).toContain('Handed off by: agent step')
  expect(targets(page)['Go to the step']).toBe('/runs/root?select=step')
})

test('an error without a type shows its message, and one without a message its type', async () => {
  for (const error of [
    { type: null, message: 'the cuff is loose', stack: null },
    { type: 'the cuff is loose', message: null, stack: null },
  ]) {
    const call = toolCall('call', { status: 'failed', error })
    const page = await detailsOf('call', plan('root', { unplaced: [call] }))

    expect(page.findAll('.recorded').map((each) => each.text())).toContain('the cuff is loose')
  }
})

test('a record with corrected times says by how much', async () => {
  const call = toolCall('call', { clockShiftUs: -1_200_000 })
  const page = await detailsOf('call', plan('root', { unplaced: [call] }))

  expect(page.text()).toContain('The shown times are the recorded ones −1.2s.')
})

test('a failed call shows its error and its reason', async () => {
  const call = toolCall('call', {
    status: 'cancelled',
    reason: 'timed_out',
    error: { type: 'TimedOut', message: 'It took too long.', stack: 'line 1' },
  })
  const page = await detailsOf('call', plan('root', { unplaced: [call] }))

  for (const text of ['TimedOut', 'It took too long.', 'timed_out']) {
    expect(page.text()).toContain(text)
  }
  expect(page.text()).toContain('The parent of this record has not arrived yet.')
})

test('a call says what hooks made of it, and what it changed', async () => {
  const call = toolCall('call', {
    effectiveArguments: '{"patient": "p-2"}',
    forgedArguments: ['token_id', 'user_id'],
    shortCircuitedBy: 'customer_hook',
    stateChanges: '[{"op": "increment", "path": ["visits"], "value": 1}]',
  })
  const tree = plan('root', { unplaced: [call] })
  const words = {
    en: ['Effective arguments', 'Forged arguments', 'Answered by hook', 'State changes'],
    'zh-CN': ['实际生效的参数', '模型越权填写的参数', '直接返回结果的钩子', '会话状态变更'],
  }

  for (const language of ['en', 'zh-CN'] as const) {
    const text = (await detailsOf('call', tree, language)).text()
    for (const said of [
      ...words[language],
      'p-2',
      'token_id, user_id',
      'customer_hook',
      'visits',
    ]) {
      expect(text).toContain(said)
    }
  }
})

test('what was masked is said, and where', async () => {
  const call = toolCall('call', { masked: ['arguments:/password', 'result'] })
  const tree = plan('root', { unplaced: [call] })

  const said = 'Masked or not kept: arguments:/password, result'
  expect((await detailsOf('call', tree)).text()).toContain(said)
  expect((await detailsOf('call', tree, 'zh-CN')).text()).toContain(
    '已脱敏或未保存：arguments:/password',
  )
})

test('a call that no hook touched shows nothing of hooks', async () => {
  const text = (await detailsOf('call', plan('root', { unplaced: [toolCall('call')] }))).text()

  for (const said of ['Effective arguments', 'Forged', 'Answered by hook', 'State changes']) {
    expect(text).not.toContain(said)
  }
})

test('a tool that goes on after its timeout is said to', async () => {
  const call = toolCall('call', { status: 'failed', reason: 'timed_out', stillRunning: true })
  const page = await detailsOf('call', plan('root', { unplaced: [call] }))

  expect(page.get('header').text()).toContain('failedtimed_outstill running')
  expect(page.text()).toContain('cannot be stopped and continues')
})

test.each([
  ['unknown', 'A placeholder'],
  ['abandoned', 'stopped sending heartbeats'],
  ['pending', 'not started'],
] as const)('a record that is %s is explained', async (status, words) => {
  const tree = plan('root', { status, title: null, abandonedAt: '2026-11-21T22:30:00Z' })

  expect((await detailsOf('root', tree)).text()).toContain(words)
})

test.each([
  ['01a2-recorder', ['01a2-recorder', 'last heartbeat', '1m'], ['01a2-recorder', '租约时长']],
  ['root', ['no recorder sends heartbeats', '1m'], ['没有新事件']],
])('an abandoned record says whose lease ran out: %s', async (recorderId, english, chinese) => {
  const lease = {
    recorderId,
    seenAt: '2026-11-21T22:29:00Z',
    leaseSeconds: 60,
    expiresAt: '2026-11-21T22:30:00.000000Z',
    renewAfterSeconds: 20,
  }
  vi.stubGlobal('fetch', async (request: Request) => {
    if (!request.url.includes('/leases')) return Response.json({ items: [], nextCursor: null })
    return Response.json({ items: [{ ...lease, expiresAt: '2026-11-21T22:00:00Z' }, lease] })
  })
  const call = toolCall('call', { status: 'abandoned', abandonedAt: '2026-11-21T22:30:00Z' })
  const tree = plan('root', { unplaced: [call] })

  for (const [language, words] of [
    ['en', english],
    ['zh-CN', chinese],
  ] as const) {
    const page = await detailsOf('call', tree, language)
    for (const said of words) {
      await until(() => expect(page.get('.notice:last-of-type').text()).toContain(said))
    }
  }
})

test('what an agent wrote is text, whatever it is', async () => {
  const hostile = '<img src=x onerror="alert(1)"><script>alert(2)</script>'
  const call = toolCall('call', { name: hostile, arguments: hostile, result: hostile })
  const page = await detailsOf('call', plan('root', { title: hostile, unplaced: [call] }))

  expect(page.findAll('img, script')).toHaveLength(0)
  expect(page.get('h2').text()).toBe(hostile)
})

test('the messages of a think-act are loaded when it is looked at', async () => {
  const messages = JSON.stringify([{ role: 'user', content: 'How was my week?' }])
  const conversation = [
    { role: 'user', name: null, parts: [{ type: 'text', text: 'How was my week?' }] },
  ]
  vi.stubGlobal('fetch', async (request: Request) => {
    const isOfSpans = request.url.includes('/spans')
    return Response.json(
      isOfSpans
        ? { items: [], nextCursor: null }
        : { thinkActId: 'round', messages, conversation, finishReasons: [] },
    )
  })
  const page = await detailsOf('round')

  await until(() => expect(page.text()).toContain('How was my week?'))
})

test('an inferred parent names its evidence', async () => {
  const evidence = { inferred: true, inferredFrom: 'its first message is the text of the call' }
  const call = toolCall('call', evidence)
  const tree = plan('root', { unplaced: [call] })

  expect((await detailsOf('call', tree)).text()).toContain(
    'inferred from its first message is the text of the call',
  )
  expect((await detailsOf('call', tree, 'zh-CN')).text()).toContain('推断')
})

test('an inherited failure names its origin and leads there, and counts there', async () => {
  const failed = {
    status: 'failed' as const,
    error: { type: 'TimeoutError', message: 'No answer.', stack: null },
  }
  const origin = toolCall('http_get', { ...failed, name: 'http_get' })
  const sub = plan('sub', {
    ...failed,
    parentPlanId: 'root',
    agentExecutions: [step('sub-step', { ...failed, toolCalls: [origin] })],
  })
  const calls = [toolCall('ask_ledger', { ...failed, subPlans: [sub] })]
  const tree = plan('root', {
    ...failed,
    agentExecutions: [step('step', { ...failed, toolCalls: calls })],
  })

  for (const key of ['root', 'ask_ledger']) {
    const page = await detailsOf(key, tree)
    expect(page.text()).toContain('Inherited errorBegan in http_get')
    expect(page.get('.totals').text()).toContain('A failure counts once, where it began: http_get')
    expect(targets(page)['http_get']).toBe('/runs/root?select=http_get')
  }
  const inside = await detailsOf('sub', tree)
  expect(inside.text()).toContain('Inherited errorBegan in http_get')
  expect(inside.text()).not.toContain('counts once')
  const itself = (await detailsOf('http_get', tree)).text()
  expect(itself).not.toContain('Inherited')
  expect(itself).not.toContain('counts once')
  expect((await detailsOf('root', tree, 'zh-CN')).text()).toContain('下级调用出错错误源自 http_get')
})
