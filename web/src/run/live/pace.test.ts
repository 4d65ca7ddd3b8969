import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { effectScope, type EffectScope } from 'vue'
import { usePace } from './pace'

const DRAWING = 30

let scope: EffectScope
let drawn: number[]
let draw: () => void

beforeEach(() => {
  vi.useFakeTimers()
  scope = effectScope()
  drawn = []
  draw = scope.run(() =>
    usePace(async () => {
      drawn.push(performance.now())
      await vi.advanceTimersByTimeAsync(DRAWING)
    }),
  )!
})

afterEach(() => {
  scope.stop()
  vi.useRealTimers()
})

test('the first news is drawn at once, and what comes during the rest in one', async () => {
  const start = performance.now()
  draw()
  await vi.advanceTimersByTimeAsync(0)
  for (let time = 0; time < 20; time += 1) draw()
  await vi.advanceTimersByTimeAsync(1_000)

  expect(drawn).toEqual([start, start + 2 * DRAWING])
})

test('nothing is drawn once it is over', async () => {
  draw()
  await vi.advanceTimersByTimeAsync(0)
  draw()
  scope.stop()
  await vi.advanceTimersByTimeAsync(1_000)

  expect(drawn).toHaveLength(1)
})
