/** The tree that a run page shows, for the components of its details. */
import { inject, type InjectionKey, type Ref } from 'vue'
import { EMPTY_FOREST, type Forest } from './rows'

export const FOREST: InjectionKey<Readonly<Ref<Forest>>> = Symbol('forest')

export function useForest(): Readonly<Ref<Forest>> {
  return inject(FOREST, () => ({ value: EMPTY_FOREST }) as Ref<Forest>, true)
}
