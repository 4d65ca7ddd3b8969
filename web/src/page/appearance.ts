/** How the viewer looks: light or dark, and how high its rows are. */
import { createGlobalState } from '@vueuse/core'
import { computed, watch, type WritableComputedRef } from 'vue'
import { usePreference } from './preferences'

export const THEMES = ['system', 'light', 'dark'] as const
export const DENSITIES = ['compact', 'comfortable'] as const

export type Theme = (typeof THEMES)[number]
export type Density = (typeof DENSITIES)[number]

/** Returns the theme; `public/appearance.js` has applied a stored one before the first paint. */
export const useTheme = createGlobalState(() => attribute('theme', THEMES))

export const useDensity = createGlobalState(() => attribute('density', DENSITIES))

/** Returns a preference that is an attribute of the page. The first value is the default. */
function attribute<Value extends string>(
  name: 'theme' | 'density',
  values: readonly Value[],
): WritableComputedRef<Value> {
  const { dataset } = document.documentElement
  const standard = values[0]!
  const stored = usePreference(name)
  watch(stored, (value) => {
    if (value === null) delete dataset[name]
    else dataset[name] = value
  })
  return computed({
    get: () => values.find((each) => each === stored.value) ?? standard,
    set: (wanted) => (stored.value = wanted === standard ? null : wanted),
  })
}
