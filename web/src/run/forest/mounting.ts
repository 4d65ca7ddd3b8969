/** Puts components into the page of a run, for tests. */
import { forestOf } from './example-tree'
import { shallowRef, type Component } from 'vue'
import type { PlanNode } from '../../api/shapes'
import type { Language } from '../../i18n/languages'
import { mountWith } from '../../ui/mounting'
import { FOREST } from './forest-key'

export function mountInRun(
  component: Component,
  props: Record<string, unknown>,
  tree: PlanNode,
  language: Language = 'en',
) {
  return mountWith(component, props, language, {
    [FOREST as symbol]: shallowRef(forestOf(tree)),
  })
}
