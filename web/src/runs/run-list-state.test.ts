// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { effectScope, nextTick, shallowRef, type EffectScope } from 'vue'
import { withQueries } from '../api/with-queries'
import { NO_FILTERS } from './run-filters'
import type { Sorting } from './run-columns'
import { useRunList } from './run-list-state'

let scope: EffectScope
let asked: URLSearchParams[]
/** The runs of the server, oldest first. */
let recorded: string[]
let failed: string[]
/** How often the server counted its runs. */
let counted: number

beforeEach(() => {
  vi.useFakeTimers()
  scope = effectScope()
  asked = []
  recorded = ['a', 'b', 'c']
  failed = []
  counted = 0
  vi.stubGlobal('fetch', async (request: Request) => {
    const { pathname, searchParams } = new URL(request.url)
    if (pathname.endsWith('/histogram')) {
      counted += 1
      return Response.json({
        count: recorded.length,
        intervalSeconds: 1,
        bins: [],
        countedBackTo: null,
      })
    }
    asked.push(searchParams)
    const items = recorded
      .filter((id) => id.includes(searchParams.get('q') ?? ''))
      .map((rootPlanId) => ({
        rootPlanId,
        startedAt: new Date(rootPlanId.charCodeAt(0)).toISOString(),
        status: failed.includes(rootPlanId) ? 'failed' : 'succeeded',
      }))
      .reverse()
    return Response.json({ items, nextCursor: null })
  })
})

afterEach(() => {
  scope.stop()
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

async function open(filters = shallowRef(NO_FILTERS)) {
  const list = withQueries(scope, () => useRunList(filters))
  await vi.advanceTimersByTimeAsync(0)
  const ids = () => list.runs.value.map((run) => run.rootPlanId).join('')
  return { list, ids, filters }
}

test('new runs come in on top, or wait while somebody reads', async () => {
  const { list, ids } = await open()
  recorded.push('d')
  await vi.advanceTimersByTimeAsync(5_000)
  expect(ids()).toBe('dcba')

  list.hold(true)
  recorded.push('e', 'f')
  await vi.advanceTimersByTimeAsync(5_000)
  expect([ids(), list.waiting.value]).toEqual(['dcba', 2])
  list.hold(false)
  expect([ids(), list.waiting.value]).toEqual(['fedcba', 0])
})

test('other filters are asked for at once, and what is shown stays until they are answered', async () => {
  const { list, ids, filters } = await open()
  list.hold(true)
  filters.value = { ...NO_FILTERS, text: 'b' }
  await nextTick()
  expect([ids(), list.loadedFor.value]).toEqual(['cba', NO_FILTERS])

  await vi.advanceTimersByTimeAsync(0)
  expect([ids(), list.loadedFor.value]).toEqual(['b', filters.value])
  expect(asked.at(-1)!.get('q')).toBe('b')
  expect([...asked[0]!.keys()]).toEqual(['limit'])
})

test('a sorted list keeps its order and announces new runs', async () => {
  const sorting = shallowRef<Sorting | null>({ key: 'cost', descending: true })
  const list = withQueries(scope, () => useRunList(shallowRef(NO_FILTERS), sorting))
  await vi.advanceTimersByTimeAsync(0)
  expect(asked.map((query) => query.get('sort'))).toEqual(['-cost', null])

  recorded.push('d')
  await vi.advanceTimersByTimeAsync(5_000)
  expect(list.runs.value.map((run) => run.rootPlanId).join('')).toBe('cba')
  expect([list.waiting.value, list.histogram.value!.count]).toEqual([1, 4])
  list.showNew()
  await vi.advanceTimersByTimeAsync(0)
  expect(list.runs.value.map((run) => run.rootPlanId).join('')).toBe('dcba')
  expect(list.waiting.value).toBe(0)

  recorded.push('e')
  sorting.value = null
  await vi.advanceTimersByTimeAsync(0)
  expect(asked.at(-1)!.has('sort')).toBe(false)
  expect(list.runs.value.map((run) => run.rootPlanId).join('')).toBe('edcba')
  expect(list.waiting.value).toBe(0)
})

test('runs are counted again when one of them fails, and not while nothing changes', async () => {
  await open()
  await vi.advanceTimersByTimeAsync(60_000)
  expect(counted).toBe(1)

  failed = ['b']
  await vi.advanceTimersByTimeAsync(10_000)
  expect(counted).toBe(2)
})
