// @vitest-environment happy-dom
import { beforeEach, expect, test, vi } from 'vitest'
import { nextTick } from 'vue'
import early from '../../public/appearance.js?raw'

const root = document.documentElement

/** Opens the page again: first the script in its head, then the application. */
async function open() {
  delete root.dataset['theme']
  vi.resetModules()
  new Function(early)()
  const { useTheme } = await import('./appearance')
  return useTheme()
}

beforeEach(() => localStorage.clear())

test('without a choice the system decides', async () => {
  const theme = await open()

  expect(theme.value).toBe('system')
  expect(root.dataset['theme']).toBeUndefined()
})

test('a chosen theme applies immediately and persists until reset', async () => {
  const theme = await open()
  theme.value = 'dark'
  await nextTick()
  expect(root.dataset['theme']).toBe('dark')

  const again = await open()
  expect([again.value, root.dataset['theme']]).toEqual(['dark', 'dark'])
  again.value = 'system'
  await nextTick()
  expect(root.dataset['theme']).toBeUndefined()
  expect((await open()).value).toBe('system')
})

test('an invalid stored theme is ignored', async () => {
  localStorage.setItem('tracer.theme', 'neon')

  expect((await open()).value).toBe('system')
})

test('a chosen density is applied before the first paint', async () => {
  await open()
  const { useDensity } = await import('./appearance')
  useDensity().value = 'comfortable'
  await nextTick()
  delete root.dataset['density']
  await open()

  expect(root.dataset['density']).toBe('comfortable')
  localStorage.clear()
  delete root.dataset['density']
})
