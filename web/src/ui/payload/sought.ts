/** The search in the shown run, for the components that show its texts. */
import { inject, shallowRef, type InjectionKey, type Ref } from 'vue'

/** The text, folded; empty if nothing is looked for. */
export const SOUGHT: InjectionKey<Readonly<Ref<string>>> = Symbol('sought')

export function useSought(): Readonly<Ref<string>> {
  return inject(SOUGHT, () => shallowRef(''), true)
}
