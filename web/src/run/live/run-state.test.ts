// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { effectScope, type EffectScope } from 'vue'
import { withQueries } from '../../api/with-queries'
import { nested, plan, toolCall, withParents } from '../forest/example-tree'
import { PlayedEventSource } from './event-sources'

let scope: EffectScope
let server: (path: string) => Response
let asked: string[]

beforeEach(() => {
  vi.useFakeTimers()
  // The reader's clock is one for all, and would keep the first test's timers.
  vi.resetModules()
  scope = effectScope()
  asked = []
  PlayedEventSource.made = []
  vi.stubGlobal('EventSource', PlayedEventSource)
  vi.stubGlobal('fetch', async (request: Request) => {
    const { pathname } = new URL(request.url)
    asked.push(pathname)
    return server(pathname)
  })
})

afterEach(() => {
  scope.stop()
  hide(false)
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

function serving(revision: number, tree = withParents(nested()), status = 'running') {
  return (path: string) =>
    path.endsWith('/tree') ? Response.json(tree) : Response.json({ revision, status })
}

function treesAsked(): number {
  return asked.filter((path) => path.endsWith('/tree')).length
}

function hide(isHidden: boolean) {
  Object.defineProperty(document, 'hidden', { value: isHidden, configurable: true })
  document.dispatchEvent(new Event('visibilitychange'))
}

/** The connection that is open now; the test fails unless exactly one is open. */
function stream(): PlayedEventSource {
  expect(PlayedEventSource.open).toHaveLength(1)
  return PlayedEventSource.open[0]!
}

async function open() {
  const { useRun } = await import('./run-state')
  const state = withQueries(scope, () => useRun('root'))
  await vi.advanceTimersByTimeAsync(0)
  return state
}

test('changes of the stream are applied to the records that were read', async () => {
  server = serving(1)
  const { forest } = await open()
  expect(stream().url).toBe('/api/runs/root/events?after=1')
  stream().accept()
  stream().send(2, { changed: [toolCall('new', { thinkActId: 'round' })] })
  await vi.advanceTimersByTimeAsync(50)

  expect(forest.value.byKey.get('new')?.parent?.key).toBe('round')
  stream().send(3, { removed: [{ kind: 'toolCall', id: 'new' }] })
  await vi.advanceTimersByTimeAsync(1_000)
  expect(forest.value.byKey.has('new')).toBe(false)
  expect(treesAsked()).toBe(1)
})

test("the run's own figures are asked for again after changes, not after each", async () => {
  server = serving(1)
  const { run, activity } = await open()
  stream().accept()
  server = serving(9, nested(), 'succeeded')
  for (let revision = 2; revision < 10; revision += 1) stream().send(revision, {})
  await vi.advanceTimersByTimeAsync(1_000)

  expect(run.value?.status).toBe('succeeded')
  expect(activity.value).toBe('ended')
  expect(asked).toEqual(['/api/runs/root', '/api/plans/root/tree', '/api/runs/root'])
})

test('figures that are older than the tree are asked for again', async () => {
  const tree = { ...withParents(nested()), revision: 2 }
  server = serving(1, tree)
  const { run } = await open()
  stream().accept()
  server = serving(2, tree)
  await vi.advanceTimersByTimeAsync(600)

  expect(run.value?.revision).toBe(2)
  expect(asked).toEqual(['/api/runs/root', '/api/plans/root/tree', '/api/runs/root'])
})

test('whoever is too far behind reads the tree anew and stays connected', async () => {
  server = serving(1)
  const { forest } = await open()
  stream().accept()
  server = serving(5_000, nested([plan('new')]))
  stream().dispatchEvent(new Event('reset'))
  await vi.advanceTimersByTimeAsync(0)

  expect(forest.value.byKey.has('new')).toBe(true)
  expect(PlayedEventSource.made).toHaveLength(1)
})

test('a run that is deleted while it is looked at is not there', async () => {
  server = serving(1)
  const { failure } = await open()
  stream().dispatchEvent(new Event('deleted'))

  expect(failure.value?.kind).toBe('notFound')
  expect(PlayedEventSource.open).toEqual([])
})

test('a stream that is refused is given up for asking again and again, and tried anew later', async () => {
  server = serving(1)
  const { forest, failure } = await open()
  for (let time = 0; time < 3; time += 1) {
    stream().refuse()
    await vi.advanceTimersByTimeAsync(1_000)
  }
  expect(PlayedEventSource.open).toEqual([])
  expect(failure.value).toBeNull()

  server = serving(2, nested([plan('new')]))
  await vi.advanceTimersByTimeAsync(1_000)
  expect(forest.value.byKey.has('new')).toBe(true)
  expect(PlayedEventSource.made).toHaveLength(3)

  await vi.advanceTimersByTimeAsync(60_000)
  expect(stream().url).toBe('/api/runs/root/events?after=2')
})

test('a stream that is open but brings nothing, as behind a proxy that waits, is noticed', async () => {
  server = serving(1)
  const { forest } = await open()
  stream().accept()
  server = serving(2, nested([plan('new')]))
  await vi.advanceTimersByTimeAsync(15_000)
  expect(forest.value.byKey.has('new')).toBe(false)

  await vi.advanceTimersByTimeAsync(2_000)
  expect(forest.value.byKey.has('new')).toBe(true)
  expect(stream().url).toBe('/api/runs/root/events?after=2')
  expect(PlayedEventSource.made).toHaveLength(2)
})

test('a connection that breaks off is left to the browser, and the server asked meanwhile', async () => {
  server = serving(1)
  const { failure, forest } = await open()
  stream().accept()
  server = () => {
    throw new TypeError('connection refused')
  }
  stream().breakOff()
  await vi.advanceTimersByTimeAsync(0)
  expect(failure.value).toEqual({ kind: 'away' })
  for (let time = 0; time < 30; time += 1) {
    stream().breakOff()
    await vi.advanceTimersByTimeAsync(1_000)
  }

  server = serving(2)
  stream().accept()
  stream().send(2, { changed: [toolCall('new', { thinkActId: 'round' })] })
  await vi.advanceTimersByTimeAsync(50)
  expect(failure.value).toBeNull()
  expect(forest.value.byKey.has('new')).toBe(true)
  expect(PlayedEventSource.made).toHaveLength(1)
  expect(treesAsked()).toBe(1)
})

test('a page that nobody looks at is not connected, and catches up when it is shown', async () => {
  server = serving(1)
  const { forest } = await open()
  stream().accept()
  hide(true)
  expect(PlayedEventSource.open).toEqual([])

  server = serving(4)
  await vi.advanceTimersByTimeAsync(3_600_000)
  hide(false)
  expect(stream().url).toBe('/api/runs/root/events?after=1')
  stream().accept()
  stream().send(4, { changed: [toolCall('new', { thinkActId: 'round' })] })
  await vi.advanceTimersByTimeAsync(1_000)
  expect(forest.value.byKey.has('new')).toBe(true)
  expect(treesAsked()).toBe(1)
})

test('after forty seconds without a word what is shown is called old, and no longer after', async () => {
  server = serving(1)
  const { failure } = await open()
  stream().accept()
  let answers = () => {}
  const stuck = new Promise<Response>((resolve) => {
    answers = () => resolve(Response.json({ revision: 1, status: 'running' }))
  })
  vi.stubGlobal('fetch', () => stuck)
  await vi.advanceTimersByTimeAsync(39_000)
  expect(failure.value).toBeNull()
  await vi.advanceTimersByTimeAsync(2_000)
  expect(failure.value).toEqual({ kind: 'away' })

  answers()
  await vi.advanceTimersByTimeAsync(0)
  expect(failure.value).toBeNull()
})

test('a run that has ended is left alone', async () => {
  server = serving(1, nested(), 'succeeded')
  await open()
  await vi.advanceTimersByTimeAsync(60_000)

  expect(asked).toHaveLength(2)
  expect(PlayedEventSource.made).toEqual([])
})

test('while the server is away what is shown stays, and it comes back by itself', async () => {
  server = serving(1)
  const { forest, failure } = await open()
  server = () => {
    throw new TypeError('connection refused')
  }
  stream().refuse()
  await vi.advanceTimersByTimeAsync(1_000)

  expect(failure.value).toEqual({ kind: 'away' })
  expect(forest.value.byKey.has('inner')).toBe(true)

  server = serving(2, nested([plan('new')]))
  await vi.advanceTimersByTimeAsync(10_000)
  expect(failure.value).toBeNull()
  expect(forest.value.byKey.has('new')).toBe(true)
})

test('the run is shown while its tree is awaited, and a tree older than it is read again', async () => {
  let answerTree = (_: Response) => {}
  vi.stubGlobal('fetch', async (request: Request) => {
    const { pathname } = new URL(request.url)
    asked.push(pathname)
    if (pathname.endsWith('/tree') && treesAsked() === 1) {
      return new Promise<Response>((resolve) => (answerTree = resolve))
    }
    return serving(2, nested([plan('new')]), 'succeeded')(pathname)
  })
  const { run, forest } = await open()
  expect([run.value?.status, forest.value.tops]).toEqual(['succeeded', []])

  answerTree(Response.json(nested()))
  await vi.advanceTimersByTimeAsync(0)
  expect(forest.value.byKey.has('new')).toBe(true)
  expect(treesAsked()).toBe(2)
})

test('an ended run is asked for again until it has all its spans', async () => {
  const ended = nested()
  const answer = serving(1, ended, 'succeeded')
  const behind = { spans: 6000, since: '2026-11-21T22:21:52Z' }
  let rest = 2
  server = (path) =>
    path.endsWith('/tree') || rest-- === 0
      ? answer(path)
      : Response.json({ revision: 1, status: 'succeeded', behind })
  const { run } = await open()
  expect(run.value?.behind).toEqual(behind)
  await vi.advanceTimersByTimeAsync(60_000)

  expect(run.value?.behind).toBeUndefined()
  expect(asked.filter((path) => !path.endsWith('/tree'))).toHaveLength(3)
})

test('a run whose first projection failed is shown without a tree', async () => {
  const behind = { spans: 1, since: '2026-11-21T22:21:52Z' }
  const projectionError = 'The projection raised KeyError.'
  server = (path) =>
    path.endsWith('/tree')
      ? Response.json({ detail: 'There is no plan.' }, { status: 404 })
      : Response.json({ revision: 1, status: 'unknown', behind, projectionError })
  const { run, failure, forest } = await open()

  expect(failure.value).toBeNull()
  expect(run.value?.projectionError).toBe(projectionError)
  expect(forest.value.byKey.size).toBe(0)
})

test('an unknown run is not asked for again', async () => {
  server = () => Response.json({ detail: 'There is no run.' }, { status: 404 })
  const { failure } = await open()
  await vi.advanceTimersByTimeAsync(60_000)

  expect(failure.value?.kind).toBe('notFound')
  expect(asked).toEqual(['/api/runs/root', '/api/plans/root/tree'])
})

test('nothing is asked once the page is left', async () => {
  server = serving(1)
  await open()
  scope.stop()
  await vi.advanceTimersByTimeAsync(60_000)

  expect(asked).toHaveLength(2)
  expect(PlayedEventSource.open).toEqual([])
})
