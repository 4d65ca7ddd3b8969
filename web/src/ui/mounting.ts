/** Puts components into a page with everything that they ask for, for tests. */
import { QueryClient, VueQueryPlugin } from '@tanstack/vue-query'
import { mount } from '@vue/test-utils'
import { onTestFinished, vi } from 'vitest'
import type { Component } from 'vue'
import { createMemoryHistory, createRouter } from 'vue-router'
import { createLanguages, loadLanguage, type Language } from '../i18n/languages'

export async function mountWith(
  component: Component,
  props: Record<string, unknown>,
  language: Language = 'en',
  provide: Record<symbol, unknown> = {},
) {
  const router = createRouter({
    history: createMemoryHistory(),
    routes: [
      { path: '/runs/:rootPlanId', name: 'run', component: {} },
      { path: '/runs', name: 'runs', component: {} },
      { path: '/sign-in', name: 'signIn', component: {} },
    ],
  })
  await router.push('/runs/root')
  const page = mount(component, {
    props,
    global: {
      plugins: [
        createLanguages(language, await loadLanguage(language)),
        router,
        [VueQueryPlugin, { queryClient: new QueryClient() }],
      ],
      provide,
    },
  })
  // What it asks the server again and again would reach the next test's.
  onTestFinished(() => page.unmount())
  return page
}

/** Waits until a check passes. `vi.waitFor` alone gives up after a second: too soon if the machine is busy. */
export function until(check: () => void): Promise<void> {
  return vi.waitFor(check, 50_000)
}
