// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { effectScope, type EffectScope } from 'vue'
import { nested, plan } from '../lineage/example-tree'
import { useRun } from './run-state'

let scope: EffectScope
let server: (path: string) => Response
let asked: string[]

beforeEach(() => {
  vi.useFakeTimers()
  scope = effectScope()
  asked = []
  vi.stubGlobal('fetch', async (request: Request) => {
    const { pathname } = new URL(request.url)
    asked.push(pathname)
    return server(pathname)
  })
})

afterEach(() => {
  scope.stop()
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

function serving(revision: number, tree = nested(), status = 'running') {
  return (path: string) =>
    path.endsWith('/tree') ? Response.json(tree) : Response.json({ revision, status })
}

async function open() {
  const state = scope.run(() => useRun('root'))!
  await vi.advanceTimersByTimeAsync(0)
  return state
}

test('the tree of a running run is read again when the run has changed', async () => {
  server = serving(1)
  const { forest } = await open()
  expect(forest.value.byKey.has('new')).toBe(false)

  await vi.advanceTimersByTimeAsync(1_000)
  expect(asked.filter((path) => path.endsWith('/tree'))).toHaveLength(1)

  server = serving(2, nested([plan('new')]))
  await vi.advanceTimersByTimeAsync(1_000)
  expect(forest.value.byKey.has('new')).toBe(true)
})

test('a run that has ended is left alone', async () => {
  server = serving(1, nested(), 'succeeded')
  await open()
  await vi.advanceTimersByTimeAsync(60_000)

  expect(asked).toHaveLength(2)
})

test('while the server is away what is shown stays, and it comes back by itself', async () => {
  server = serving(1)
  const { forest, failure } = await open()
  server = () => {
    throw new TypeError('connection refused')
  }
  await vi.advanceTimersByTimeAsync(1_000)

  expect(failure.value).toEqual({ kind: 'away' })
  expect(forest.value.byKey.has('inner')).toBe(true)

  server = serving(2, nested([plan('new')]))
  await vi.advanceTimersByTimeAsync(10_000)
  expect(failure.value).toBeNull()
  expect(forest.value.byKey.has('new')).toBe(true)
})

test('an unknown run is not asked for again', async () => {
  server = () => Response.json({ detail: 'There is no run.' }, { status: 404 })
  const { failure } = await open()
  await vi.advanceTimersByTimeAsync(60_000)

  expect(failure.value?.kind).toBe('notFound')
  expect(asked).toHaveLength(1)
})

test('nothing is asked once the page is left', async () => {
  server = serving(1)
  await open()
  scope.stop()
  await vi.advanceTimersByTimeAsync(60_000)

  expect(asked).toHaveLength(2)
})
