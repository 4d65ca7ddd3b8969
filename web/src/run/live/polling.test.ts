// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { effectScope, type EffectScope } from 'vue'
import { retryDelay, usePolling } from './polling'

let scope: EffectScope

beforeEach(() => {
  vi.useFakeTimers()
  scope = effectScope()
})

afterEach(() => {
  scope.stop()
  vi.useRealTimers()
})

test('polls immediately and after each delay', async () => {
  const delays = [100, 200, null]
  const ask = vi.fn(async () => delays.shift() ?? null)
  scope.run(() => usePolling(ask))

  await vi.advanceTimersByTimeAsync(0)
  expect(ask).toHaveBeenCalledTimes(1)
  await vi.advanceTimersByTimeAsync(100)
  expect(ask).toHaveBeenCalledTimes(2)
  await vi.advanceTimersByTimeAsync(10_000)
  expect(ask).toHaveBeenCalledTimes(3)
})

test('has one request at a time and repeats it for later callers', async () => {
  let answer = (_: null) => {}
  const ask = vi.fn(() => new Promise<null>((resolve) => (answer = resolve)))
  const { askNow } = scope.run(() => usePolling(ask))!

  askNow()
  askNow()
  expect(ask).toHaveBeenCalledTimes(1)
  answer(null)
  await vi.advanceTimersByTimeAsync(0)
  expect(ask).toHaveBeenCalledTimes(2)
})

test('it asks when the network goes and when it comes back, and no more once it is over', async () => {
  const ask = vi.fn(async () => null)
  scope.run(() => usePolling(ask))
  for (const event of ['offline', 'online']) {
    await vi.advanceTimersByTimeAsync(0)
    window.dispatchEvent(new Event(event))
  }
  expect(ask).toHaveBeenCalledTimes(3)

  scope.stop()
  window.dispatchEvent(new Event('online'))
  expect(ask).toHaveBeenCalledTimes(3)
})

test('consecutive failures back off up to a limit', () => {
  expect([1, 2, 3, 4, 5, 50].map(retryDelay)).toEqual([1000, 2000, 4000, 8000, 10_000, 10_000])
})
