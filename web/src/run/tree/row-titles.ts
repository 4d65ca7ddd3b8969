/** Titles of what a row cuts or abbreviates, made when it is pointed at: rows have to be cheap. */
import { useI18n } from 'vue-i18n'
import { formatCount, formatShare } from '../../lib/formatting'
import { shownTotals, type Row } from '../forest/rows'

/** Gives what to call when the pointer moves, and after each rendering. */
export function useRowTitles(
  rowOf: (target: EventTarget | null) => Row | null,
  shareOf: (row: Row) => number | null,
) {
  const { t, locale } = useI18n()

  function totalsOf(row: Row): string {
    const { inputTokens, outputTokens } = shownTotals(row)
    const used = t('run.tokensOf', {
      input: formatCount(inputTokens, locale.value),
      output: formatCount(outputTokens, locale.value),
    })
    const share = shareOf(row)
    const shown =
      share === null ? [] : [t('run.share', { share: formatShare(share, locale.value) })]
    return t(row.kind === 'thinkAct' ? 'run.ofCall' : 'run.ofBranch', {
      totals: [used, ...shown].join(' · '),
    })
  }

  let titled: { element: HTMLElement; key: string } | null = null

  function clear() {
    titled?.element.removeAttribute('title')
    titled = null
  }

  /** Removes the title of an element that belongs to another row now. */
  function clearReused() {
    if (titled && rowOf(titled.element)?.key !== titled.key) clear()
  }

  function show({ target }: MouseEvent) {
    const row = rowOf(target)
    const element =
      target instanceof Element ? target.closest<HTMLElement>('[data-totals], [data-cut]') : null
    if (titled && titled.element === element) return
    clear()
    if (!row || !element) return
    titled = { element, key: row.key }
    if ('totals' in element.dataset) element.title = totalsOf(row)
    else if (element.scrollWidth > element.clientWidth) element.title = element.textContent.trim()
  }

  return { show, clearReused }
}
