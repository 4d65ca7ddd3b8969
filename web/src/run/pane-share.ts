/** How a pane shares its room with the one after it: the reader's choice, kept on this device. */
import { computed, type Ref } from 'vue'
import { usePreference } from '../page/preferences'

/** Neither pane gets less of the width than this, in percent. */
export const LEAST_SHARE = 15
export const MOST_SHARE = 100 - LEAST_SHARE

/** The nearest share that leaves something of both panes, to a tenth of a percent. */
export function allowedShare(wished: number): number {
  return Math.round(Math.min(MOST_SHARE, Math.max(LEAST_SHARE, wished)) * 10) / 10
}

/**
 * The first pane's part of the width in percent, remembered unless it is the default.
 *
 * @param name Which panes these are.
 */
export function usePaneShare(name: string, usual: number): Ref<number> {
  const stored = usePreference(`share.${name}`)
  return computed({
    get: () => {
      const share = Number.parseFloat(stored.value ?? '')
      return Number.isFinite(share) ? allowedShare(share) : usual
    },
    set: (share) => (stored.value = share === usual ? null : String(share)),
  })
}
