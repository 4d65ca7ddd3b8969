/** The viewer's languages, and which one a reader gets. */
import { createI18n } from 'vue-i18n'
import en from './en.json'
import zhCN from './zh-CN.json'

export const LANGUAGES = { en: 'English', 'zh-CN': '简体中文' } as const

export type Language = keyof typeof LANGUAGES

/** The reader's own choice, else the first of their browser's languages that there is. */
export function firstLanguage(chosen: string | null, preferred: readonly string[]): Language {
  if (chosen !== null && chosen in LANGUAGES) return chosen as Language
  for (const tag of preferred) {
    const primary = tag.toLowerCase().split('-')[0]
    if (primary === 'zh') return 'zh-CN'
    if (primary === 'en') return 'en'
  }
  return 'en'
}

export function createLanguages(language: Language) {
  return createI18n({
    legacy: false,
    locale: language,
    fallbackLocale: 'en',
    messages: { en, 'zh-CN': zhCN },
  })
}

declare module 'vue-i18n' {
  // Makes a message key that does not exist a type error.
  export interface DefineLocaleMessage extends Messages {}
}

type Messages = typeof en
