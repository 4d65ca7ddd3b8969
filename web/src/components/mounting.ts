/** Puts components into a page with everything that they ask for, for tests. */
import { mount } from '@vue/test-utils'
import { shallowRef, type Component } from 'vue'
import { createMemoryHistory, createRouter } from 'vue-router'
import type { PlanNode } from '../api/shapes'
import { createLanguages, type Language } from '../i18n/languages'
import { buildForest } from '../lineage/rows'
import { FOREST } from '../state/forest-key'

export async function mountWith(
  component: Component,
  props: Record<string, unknown>,
  tree: PlanNode,
  language: Language = 'en',
) {
  const router = createRouter({
    history: createMemoryHistory(),
    routes: [{ path: '/runs/:rootPlanId', component: {} }],
  })
  await router.push('/runs/root')
  return mount(component, {
    props,
    global: {
      plugins: [createLanguages(language), router],
      provide: { [FOREST as symbol]: shallowRef(buildForest(tree)) },
    },
  })
}
