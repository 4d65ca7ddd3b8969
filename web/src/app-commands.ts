/** The commands that every page offers. */
import { refAutoReset } from '@vueuse/core'
import { shallowRef, watch } from 'vue'
import { useRouter } from 'vue-router'
import { LANGUAGES, type Language } from './i18n/languages'
import { DENSITIES, THEMES, useDensity, useTheme } from './page/appearance'
import { useCaller } from './page/caller'
import { useCommands } from './page/commands'
import { useLanguage } from './page/language'
import { nextRow } from './page/row-focus'
import { useSignOut } from './page/sign-out'
import { copyText, SHOWN } from './ui/copying'

export function useAppCommands() {
  const router = useRouter()
  const theme = useTheme()
  const density = useDensity()
  const language = useLanguage()
  const { caller, managesKeys } = useCaller()
  const { changeProject, signOut } = useSignOut()
  const palette = useDialog()
  const help = useDialog()
  const isCopied = refAutoReset(false, SHOWN)

  useCommands(() => ({
    palette: palette.open,
    help: help.open,
    // A page without a search field of its own.
    search: palette.open,
    copyLink: async () => (isCopied.value = await copyText(window.location.href)),
    openRuns: () => void router.push({ name: 'runs' }),
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

/** A dialog whose code is loaded when it is opened first. */
function useDialog() {
  const isOpen = shallowRef(false)
  const wasOpen = shallowRef(false)
  watch(isOpen, () => (wasOpen.value = true), { flush: 'sync' })
  return { isOpen, wasOpen, open: () => void (isOpen.value = true) }
}

function following<Value>(values: readonly Value[], value: Value): Value {
  return values[(values.indexOf(value) + 1) % values.length]!
}
