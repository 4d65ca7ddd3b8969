/** The viewer's languages, and which one a reader gets. */
import { createI18n } from 'vue-i18n'
import type en from './en.json'

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

/** Loads the texts of a language. */
export async function loadLanguage(language: Language): Promise<Messages> {
  return (await TEXTS[language]()).default
}

const TEXTS = {
  en: () => import('./en.json'),
  'zh-CN': () => import('./zh-CN.json'),
} satisfies Record<Language, () => Promise<{ default: Messages }>>

/** Makes the viewer's texts available in one language. */
export function createLanguages(language: Language, messages: Messages) {
  return createI18n({ legacy: false, locale: language, messages: { [language]: messages } })
}

declare module 'vue-i18n' {
  // Makes a message key that does not exist a type error.
  export interface DefineLocaleMessage extends Messages {}
}

type Messages = typeof en
