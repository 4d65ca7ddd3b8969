/** Preferences of a reader for all pages, stored on the device if the browser allows it. */
import { useLocalStorage } from '@vueuse/core'
import type { Ref } from 'vue'

export type Preference =
  'language' | 'theme' | 'density' | 'shortcuts' | 'views' | `share.${string}`

/** Returns a stored preference, which can be written; null is the default. */
export function usePreference(name: Preference): Ref<string | null> {
  // If the browser denies its storage, a preference holds until the page is left.
  return useLocalStorage<string | null>(`tracer.${name}`, null, {
    onError: () => {},
    flush: 'sync',
  })
}
