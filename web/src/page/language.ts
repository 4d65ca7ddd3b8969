/** The language of the viewer, which the reader can change. */
import { computed } from 'vue'
import { useI18n } from 'vue-i18n'
import { loadLanguage, type Language } from '../i18n/languages'
import { usePreference } from './preferences'

export function useLanguage() {
  const { locale, setLocaleMessage } = useI18n()
  const stored = usePreference('language')

  async function choose(language: Language) {
    setLocaleMessage(language, await loadLanguage(language))
    locale.value = language
    stored.value = language
  }

  return computed({
    get: () => locale.value as Language,
    set: (language) => void choose(language),
  })
}
