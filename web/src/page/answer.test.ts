// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { effectScope, nextTick, shallowRef, type EffectScope } from 'vue'
import type { Outcome } from '../api/outcome'
import { useAnswer } from './answer'

let scope: EffectScope

beforeEach(() => {
  vi.useFakeTimers()
  scope = effectScope()
})

afterEach(() => {
  scope.stop()
  vi.useRealTimers()
})

const settle = () => vi.advanceTimersByTimeAsync(0)

test('a response to an outdated request is not shown', async () => {
  const question = shallowRef('slow')
  const waiting = new Map<string, (answer: Outcome<string>) => void>()
  const ask = (asked: string) =>
    new Promise<Outcome<string>>((resolve) => waiting.set(asked, resolve))
  const { answer, answered } = scope.run(() => useAnswer(question, ask, () => null))!
  await settle()

  question.value = 'quick'
  await nextTick()
  waiting.get('slow')!({ ok: true, value: 'old' })
  await settle()
  expect(answer.value).toBeNull()
  waiting.get('quick')!({ ok: true, value: 'new' })
  await settle()
  expect([answer.value, answered.value]).toEqual(['new', 'quick'])
})

test('while nobody answers what is shown stays, and it is asked again', async () => {
  const outcomes: Outcome<number>[] = [
    { ok: true, value: 1 },
    { ok: false, failure: { kind: 'away' } },
    { ok: true, value: 2 },
  ]
  const ask = async () => outcomes.shift()!
  const { answer, failure } = scope.run(() => useAnswer(shallowRef(null), ask, () => 5_000))!
  await settle()
  await vi.advanceTimersByTimeAsync(5_000)
  expect([answer.value, failure.value]).toEqual([1, { kind: 'away' }])

  await vi.advanceTimersByTimeAsync(1_000)
  expect([answer.value, failure.value]).toEqual([2, null])
})

test('a missing resource is not requested again', async () => {
  const ask = vi.fn(async (): Promise<Outcome<number>> => ({
    ok: false,
    failure: { kind: 'notFound', detail: '' },
  }))
  scope.run(() => useAnswer(shallowRef(null), ask, () => 5_000))
  await vi.advanceTimersByTimeAsync(60_000)

  expect(ask).toHaveBeenCalledTimes(1)
})
