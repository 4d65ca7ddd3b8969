/** The commands that every page offers. */
import { refAutoReset } from '@vueuse/core'
import { useRouter } from 'vue-router'
import { LANGUAGES, type Language } from './i18n/languages'
import { DENSITIES, THEMES, useDensity, useTheme } from './page/appearance'
import { useCaller } from './page/caller'
import { useCommands } from './page/commands'
import { copyLink } from './page/copy-link'
import { useLanguage } from './page/language'
import { useLazyDialog } from './page/lazy-dialog'
import { nextRow } from './page/row-focus'
import { useSignOut } from './page/sign-out'
import { SHOWN } from './ui/copying'

export function useAppCommands() {
  const router = useRouter()
  const theme = useTheme()
  const density = useDensity()
  const language = useLanguage()
  const { caller, managesKeys } = useCaller()
  const { changeProject, signOut } = useSignOut()
  const palette = useLazyDialog(() => import('./palette/command-palette.vue'))
  const help = useLazyDialog(() => import('./palette/key-help.vue'))
  const isCopied = refAutoReset(false, SHOWN)

  useCommands(() => ({
    palette: palette.open,
    help: help.open,
    // A page without a search field of its own.
    search: palette.open,
    copyLink: async () => (isCopied.value = await copyLink()),
    openOverview: () => void router.push({ name: 'overview' }),
    openRuns: () => void router.push({ name: 'runs' }),
    openConversations: () => void router.push({ name: 'conversations' }),
    openTools: () => void router.push({ name: 'tools' }),
    ...(managesKeys.value && { openKeys: () => void router.push({ name: 'keys' }) }),
    changeTheme: () => (theme.value = following(THEMES, theme.value)),
    changeDensity: () => (density.value = following(DENSITIES, density.value)),
    changeLanguage: () =>
      (language.value = following(Object.keys(LANGUAGES) as Language[], language.value)),
    ...(caller.value?.keyId && { changeProject, signOut }),
    nextRow: () => nextRow(1),
    previousRow: () => nextRow(-1),
  }))
  return { palette, help, isCopied }
}

function following<Value>(values: readonly Value[], value: Value): Value {
  return values[(values.indexOf(value) + 1) % values.length]!
}
