/** The waterfall: whether it is shown, and which part of the run's time. */
import { computed, inject, provide, shallowRef, type InjectionKey, type Ref } from 'vue'
import { useAddress } from '../../page/address'
import { useNow } from '../../ui/now'
import type { Forest, Row } from '../forest/rows'
import {
  panned,
  readWindow,
  ticks,
  windowAround,
  wholeWindow,
  withinWhole,
  writeWindow,
  zoomed,
  type TimeWindow,
} from './time-scale'
import { buildTimeline, NO_TIMELINE, spanIn } from './timeline'

/** How many pixels a tick's name needs. */
const TICK_WIDTH = 112
/** At least two moments have names: one alone does not show the scale. */
const FEWEST_TICKS = 3
const NARROW = '(width < 48rem)'

/**
 * @param silentSince When the last heartbeat of an open run arrived, in milliseconds since 1970,
 *   if it has been silent since. Its open records end there: later, nobody knows.
 */
export function provideTimes(forest: Ref<Forest>, silentSince: Readonly<Ref<number | null>>) {
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
  const chosen = useAddress('time', 'replace', readWindow, writeWindow)
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
  const visible = useAddress(
    'waterfall',
    'replace',
    (text) => (text === null ? fitting : text !== 'off'),
    (wanted) => (wanted === fitting ? null : wanted ? 'on' : 'off'),
  )

  const criticalPath = useAddress(
    'path',
    'replace',
    (text) => text === 'critical',
    (wanted) => (wanted ? 'critical' : null),
  )

  /** Shows a record's time, as large as there is room. */
  function zoomTo(row: Row | null) {
    const span = row && spanIn(timeline.value, row)
    if (span) show(windowAround(span, now.value))
  }

  const times = {
    timeline,
    now,
    whole,
    chosen,
    shown,
    width,
    ticks: named,
    visible,
    /** Whether the records that the run's end waited for are marked. */
    criticalPath,
    show,
    zoom,
    zoomTo,
    pan,
  }
  provide(TIMES, times)
  return times
}

const TIMES: InjectionKey<ReturnType<typeof provideTimes>> = Symbol('times')

/** The times of the shown run's records; null without a run. */
export function useTimes() {
  return inject(TIMES, null)
}
