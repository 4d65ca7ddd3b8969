// @vitest-environment happy-dom
import { mount } from '@vue/test-utils'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { defineComponent } from 'vue'
import { createMemoryHistory, createRouter, type Router } from 'vue-router'
import { useAddress, type Address } from './address'

let router: Router
let address: Address
let heard: number

beforeEach(async () => {
  vi.useFakeTimers()
  heard = 0
  router = createRouter({ history: createMemoryHistory(), routes: [{ path: '/', component: {} }] })
  await router.push('/?kept=1')
  const page = defineComponent({
    setup() {
      address = useAddress()
      address.onArrival(() => (heard += 1))
      return () => null
    },
  })
  mount(page, { global: { plugins: [router] } })
})

afterEach(() => void vi.useRealTimers())

const settled = () => vi.advanceTimersByTimeAsync(200)

test('changes are written together once they settle, and nobody hears of them', async () => {
  address.write({ select: 'a', q: 'tea' })
  address.write({ select: 'b', kept: null })
  expect(router.currentRoute.value.query).toEqual({ kept: '1' })

  await settled()
  expect(router.currentRoute.value.query).toEqual({ select: 'b', q: 'tea' })
  expect(address.read('select')).toBe('b')
  expect(heard).toBe(0)
})

test('going back returns to before what left a trail', async () => {
  address.write({ select: 'a' }, true)
  await settled()
  address.write({ q: 'tea' })
  await settled()
  router.back()
  await settled()

  expect(router.currentRoute.value.query).toEqual({ kept: '1' })
  expect(heard).toBe(1)
})

test('a link wins over what has not settled yet', async () => {
  address.write({ select: 'a' })
  await router.push('/?select=b')
  await settled()

  expect(router.currentRoute.value.query).toEqual({ select: 'b' })
  expect(heard).toBe(1)
})

test('a pending change does not cancel loading another page', async () => {
  router.addRoute({
    path: '/lazy',
    component: () => new Promise((done) => setTimeout(() => done({ render: () => null }), 1_000)),
  })
  address.write({ select: 'a' })
  void router.push('/lazy')
  await vi.advanceTimersByTimeAsync(2_000)

  expect(router.currentRoute.value.path).toBe('/lazy')
})
