// @vitest-environment happy-dom
import { afterEach, expect, test, vi } from 'vitest'
import { plan } from '../forest/example-tree'
import { until } from '../../ui/mounting'
import { mountInRun } from '../forest/mounting'
import SpanList from './span-list.vue'

afterEach(() => vi.unstubAllGlobals())

function span(spanId: string, attributes: object, more: object = {}) {
  return {
    spanId,
    parentSpanId: null,
    name: 'invoke_agent nurse',
    kind: 'internal',
    startedAt: '2026-11-21T22:21:52.462812Z',
    finishedAt: '2026-11-21T22:21:53.462812Z',
    startTimeUnixNano: '1795299712462812345',
    endTimeUnixNano: '1795299713962812345',
    statusCode: 'error',
    statusMessage: 'the cuff is loose',
    attributes,
    events: [],
    links: [],
    resource: {},
    scope: 'by-hand',
    scopeVersion: '1.0',
    record: null,
    ...more,
  }
}

/** Answers with these spans, a page each, and returns the requested paths. */
function serve(...pages: object[][]): URL[] {
  return serveWithLogs([], ...pages)
}

function serveWithLogs(logs: object[], ...pages: object[][]): URL[] {
  const asked: URL[] = []
  vi.stubGlobal('fetch', async (request: Request) => {
    const url = new URL(request.url)
    asked.push(url)
    const page = Number(url.searchParams.get('cursor') ?? 0)
    const nextCursor = page + 1 < pages.length ? String(page + 1) : null
    return Response.json({ items: pages[page] ?? [], logs, nextCursor })
  })
  return asked
}

async function listOf(rootPlanId: string, language: 'en' | 'zh-CN' = 'en') {
  return mountInRun(SpanList, { rootPlanId, recordId: 'step' }, plan(rootPlanId), language)
}

async function opened(page: Awaited<ReturnType<typeof listOf>>) {
  await until(() => expect(page.find('details').exists()).toBe(true))
  const details = page.get('details')
  ;(details.element as HTMLDetailsElement).open = true
  await details.trigger('toggle')
}

test('a run without spans shows nothing of them', async () => {
  const asked = serve([])
  const page = await listOf('without')

  await until(() => expect(asked).toHaveLength(1))
  expect(page.find('details').exists()).toBe(false)
})

test('the spans of a record are loaded when they are opened, with every attribute', async () => {
  const attributes = { 'gen_ai.agent.name': 'nurse', 'my.own': { deep: [1, 2] } }
  const asked = serve([span('a1', attributes)])
  const page = await listOf('with')
  await until(() => expect(page.find('details').exists()).toBe(true))
  expect(asked).toHaveLength(1)

  await opened(page)
  await until(() => expect(page.text()).toContain('invoke_agent nurse'))

  expect(asked.at(-1)!.searchParams.get('recordId')).toBe('step')
  for (const said of ['my.own', 'deep', 'error: the cuff is loose', 'by-hand 1.0', 'a1', '1.5s']) {
    expect(page.text()).toContain(said)
  }
})

test('more spans come a page at a time', async () => {
  serve([span('a1', {})], [span('b2', {})])
  const page = await listOf('pages')
  await opened(page)
  await until(() => expect(page.find('button.outlined').exists()).toBe(true))
  await page.get('button.outlined').trigger('click')

  await until(() => expect(page.text()).toContain('b2'))
  expect(page.text()).toContain('a1')
  expect(page.find('button.outlined').exists()).toBe(false)
})

test('it speaks Chinese, and says when the record has none', async () => {
  vi.stubGlobal('fetch', async (request: Request) => {
    const isOfRecord = new URL(request.url).searchParams.has('recordId')
    return Response.json({ items: isOfRecord ? [] : [span('a1', {})], logs: [], nextCursor: null })
  })
  const page = await listOf('chinese', 'zh-CN')
  await opened(page)

  await until(() => expect(page.text()).toContain('该节点没有对应的 span'))
  expect(page.get('summary').text()).toBe('原始 span')
})

test('the log records of a span are shown with it', async () => {
  const log = { spanId: 'a1', name: 'user_prompt', attributes: { prompt: 'Check bed 3' } }
  serveWithLogs([log, { ...log, spanId: null, name: 'other' }], [span('a1', {})])
  const page = await listOf('with-logs')

  await opened(page)
  await until(() => expect(page.text()).toContain('Log records of span 1'))
  expect(page.text()).toContain('user_prompt')
  expect(page.text()).not.toContain('other')
})
