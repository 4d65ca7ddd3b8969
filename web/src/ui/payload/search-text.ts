/** The search in the shown run, for the components that show its texts. */
import { inject, shallowRef, type InjectionKey, type Ref } from 'vue'

/** The text, folded; empty if nothing is looked for. */
export const SEARCH_TEXT: InjectionKey<Readonly<Ref<string>>> = Symbol('searchText')

export function useSearchText(): Readonly<Ref<string>> {
  return inject(SEARCH_TEXT, () => shallowRef(''), true)
}
