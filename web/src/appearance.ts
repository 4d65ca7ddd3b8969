/** How the viewer looks: light or dark, and how high its rows are. Kept on the reader's device. */
import { ref, watch, type Ref } from 'vue'
import { rememberChoice } from './page/reader-choices'

export const THEMES = ['system', 'light', 'dark'] as const
export const DENSITIES = ['compact', 'comfortable'] as const

export type Theme = (typeof THEMES)[number]
export type Density = (typeof DENSITIES)[number]

let theme: Ref<Theme> | null = null
let density: Ref<Density> | null = null

/** Returns the theme; `public/appearance.js` has applied a remembered one before the first paint. */
export function useTheme(): Ref<Theme> {
  theme ??= attribute('theme', THEMES)
  return theme
}

export function useDensity(): Ref<Density> {
  density ??= attribute('density', DENSITIES)
  return density
}

/** Returns a choice that is an attribute of the page. The first value is the default. */
function attribute<Value extends string>(
  name: 'theme' | 'density',
  values: readonly Value[],
): Ref<Value> {
  const { dataset } = document.documentElement
  const standard = values[0]!
  const chosen = ref(values.find((each) => each === dataset[name]) ?? standard) as Ref<Value>
  watch(chosen, (wanted) => {
    if (wanted === standard) delete dataset[name]
    else dataset[name] = wanted
    rememberChoice(name, wanted === standard ? null : wanted)
  })
  return chosen
}
