/** The waterfall: whether it is shown, and which part of the run's time. */
import { computed, inject, shallowRef, watch, type InjectionKey, type Ref } from 'vue'
import type { Address } from '../../page/address'
import { useNow } from '../../ui/now'
import type { Forest } from '../forest/rows'
import {
  panned,
  readWindow,
  ticks,
  wholeWindow,
  withinWhole,
  writeWindow,
  zoomed,
  type TimeWindow,
} from './time-scale'
import { buildTimeline, NO_TIMELINE } from './timeline'

/** How many pixels a tick's name needs. */
const TICK_WIDTH = 112
/** At least two moments have names: one alone does not show the scale. */
const FEWEST_TICKS = 3
const NARROW = '(width < 48rem)'

/**
 * @param silentSince When the last heartbeat of an open run arrived, in milliseconds since 1970,
 *   if it has been silent since. Its open records end there: later, nobody knows.
 */
export function useTimeWindow(
  forest: Ref<Forest>,
  address: Address,
  silentSince: Readonly<Ref<number | null>>,
) {
  const clock = useNow()
  const timeline = computed(() => buildTimeline(forest.value))
  /** The reader's clock, as the timeline counts. */
  const now = computed(() => {
    const { open, zero } = timeline.value
    return open ? (silentSince.value ?? clock.value) - zero : Infinity
  })
  const whole = computed(() => {
    const { end, open } = timeline.value
    return wholeWindow(open ? Math.max(end, now.value) : end)
  })

  /** The window that the reader chose; null for all, including future moments. */
  const chosen = shallowRef(readWindow(address.read('time')))
  const shown = computed(() =>
    chosen.value === null ? whole.value : withinWhole(chosen.value, whole.value),
  )

  function show(wished: TimeWindow | null) {
    const allowed = wished === null ? null : withinWhole(wished, whole.value)
    const isWhole = allowed?.from === whole.value.from && allowed.to === whole.value.to
    chosen.value = isWhole ? null : allowed
  }

  /** The width of what shows it, in pixels. */
  const width = shallowRef(0)
  const named = computed(() =>
    timeline.value === NO_TIMELINE
      ? { step: 1, moments: [] }
      : ticks(shown.value, Math.max(FEWEST_TICKS, Math.floor(width.value / TICK_WIDTH))),
  )

  const zoom = (factor: number, fraction?: number) => show(zoomed(shown.value, factor, fraction))
  const pan = (part: number) => show(panned(shown.value, part))

  /** A small screen has room for the tree alone, until its reader asks for more. */
  const fitting = !window.matchMedia(NARROW).matches
  const visible = shallowRef(visibleFromUrl())

  function visibleFromUrl(): boolean {
    const value = address.read('waterfall')
    return value === null ? fitting : value !== 'off'
  }

  watch(chosen, (value) => address.write({ time: writeWindow(value) }))
  watch(visible, (value) =>
    address.write({ waterfall: value === fitting ? null : value ? 'on' : 'off' }),
  )
  address.onArrival(() => {
    chosen.value = readWindow(address.read('time'))
    visible.value = visibleFromUrl()
  })
  return {
    timeline,
    now,
    whole,
    chosen,
    shown,
    width,
    ticks: named,
    visible,
    show,
    zoom,
    pan,
  }
}

export const TIMES: InjectionKey<ReturnType<typeof useTimeWindow>> = Symbol('times')

/** The times of the shown run's records; null without a run. */
export function useTimes() {
  return inject(TIMES, null)
}
