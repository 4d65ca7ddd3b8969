// @vitest-environment happy-dom
import { mount } from '@vue/test-utils'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { defineComponent, shallowRef, watch, type Ref } from 'vue'
import { createMemoryHistory, createRouter, type Router } from 'vue-router'
import { useAddress, useAddressOfMany } from './address'

const mode = shallowRef<'push' | 'replace'>('replace')
let router: Router
let selected: Ref<string | null>
let search: Ref<string | null>
let range: Ref<{ from: string | null; to: string | null }>
let changes: number

beforeEach(async () => {
  vi.useFakeTimers()
  changes = 0
  mode.value = 'replace'
  router = createRouter({ history: createMemoryHistory(), routes: [{ path: '/', component: {} }] })
  await router.push('/?kept=1&from=a')
  const page = defineComponent({
    setup() {
      selected = useAddress('select', mode)
      search = useAddress('q')
      range = useAddressOfMany(
        ['from', 'to'],
        'replace',
        (read) => ({ from: read('from'), to: read('to') }),
        (value) => value,
      )
      watch(selected, () => (changes += 1), { flush: 'sync' })
      return () => null
    },
  })
  mount(page, { global: { plugins: [router] } })
})

afterEach(() => void vi.useRealTimers())

const settled = () => vi.advanceTimersByTimeAsync(200)

test('a value holds at once, and the address has all values once they settle', async () => {
  selected.value = 'a'
  search.value = 'tea'
  await vi.advanceTimersByTimeAsync(50)
  selected.value = 'b'
  range.value = { from: null, to: 'z' }
  expect([selected.value, search.value, range.value.to]).toEqual(['b', 'tea', 'z'])
  expect(router.currentRoute.value.query).toEqual({ kept: '1', from: 'a' })

  await settled()
  expect(router.currentRoute.value.query).toEqual({ kept: '1', select: 'b', q: 'tea', to: 'z' })
  expect(changes).toBe(2)
})

test('going back returns to before the change that was pushed', async () => {
  mode.value = 'push'
  selected.value = 'a'
  search.value = 'milk'
  await settled()
  search.value = 'tea'
  await settled()
  router.back()
  await settled()

  expect(router.currentRoute.value.query).toEqual({ kept: '1', from: 'a' })
  expect([selected.value, search.value]).toEqual([null, null])
})

test('a link wins over changes that have not settled', async () => {
  selected.value = 'a'
  search.value = 'tea'
  await vi.advanceTimersByTimeAsync(50)
  await router.push('/?select=b')
  await settled()

  expect(router.currentRoute.value.query).toEqual({ select: 'b' })
  expect([selected.value, search.value]).toEqual(['b', null])
})

test('a pending change does not cancel loading another page', async () => {
  router.addRoute({
    path: '/lazy',
    component: () => new Promise((done) => setTimeout(() => done({ render: () => null }), 1_000)),
  })
  selected.value = 'a'
  void router.push('/lazy')
  await vi.advanceTimersByTimeAsync(2_000)

  expect(router.currentRoute.value.path).toBe('/lazy')
})
