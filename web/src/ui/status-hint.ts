import { useI18n } from 'vue-i18n'

/** Gives a sentence about a status whose word does not explain itself; undefined for the others. */
export function useStatusHint() {
  const { t } = useI18n()
  return (status: string) =>
    status === 'abandoned' || status === 'unknown' || status === 'handled'
      ? t(`marks.${status}`)
      : undefined
}
