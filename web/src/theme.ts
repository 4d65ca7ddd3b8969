/** Light or dark: as the system asks, or as the reader chose. */
import { ref, watch, type Ref } from 'vue'
import { rememberChoice } from './page/reader-choices'

export const THEMES = ['system', 'light', 'dark'] as const

export type Theme = (typeof THEMES)[number]

let theme: Ref<Theme> | null = null

/** The theme of the whole page; `public/theme.js` put a remembered one in place before it. */
export function useTheme(): Ref<Theme> {
  if (theme === null) {
    const root = document.documentElement
    const chosen = root.dataset['theme']
    theme = ref(chosen === 'light' || chosen === 'dark' ? chosen : 'system')
    watch(theme, (wanted) => {
      if (wanted === 'system') delete root.dataset['theme']
      else root.dataset['theme'] = wanted
      rememberChoice('theme', wanted === 'system' ? null : wanted)
    })
  }
  return theme
}
