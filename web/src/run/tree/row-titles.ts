/** Titles of what a row cuts or abbreviates, made when it is pointed at: rows have to be cheap. */
import { useI18n } from 'vue-i18n'
import { formatCount, formatShare } from '../../lib/formatting'
import { shownTotals, type Row } from '../forest/rows'

/** Gives what to call when the pointer moves onto an element of a row. */
export function useRowTitles(
  rowOf: (target: EventTarget | null) => Row | null,
  shareOf: (row: Row) => number,
) {
  const { t, locale } = useI18n()

  function totalsOf(row: Row): string {
    const { inputTokens, outputTokens } = shownTotals(row)
    const used = t('run.tokensOf', {
      input: formatCount(inputTokens, locale.value),
      output: formatCount(outputTokens, locale.value),
    })
    const share = t('run.share', { share: formatShare(shareOf(row), locale.value) })
    return t(row.kind === 'thinkAct' ? 'run.ofCall' : 'run.ofBranch', {
      totals: `${used} · ${share}`,
    })
  }

  return ({ target }: MouseEvent) => {
    const row = rowOf(target)
    if (!row || !(target instanceof Element)) return
    const totals = target.closest<HTMLElement>('[data-totals]')
    if (totals) totals.title = totalsOf(row)
    const cut = target.closest<HTMLElement>('[data-cut]')
    if (cut) cut.title = cut.scrollWidth > cut.clientWidth ? cut.textContent.trim() : ''
  }
}
