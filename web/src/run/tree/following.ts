/** The current calls of a running run, and whether the tree keeps it in view. */
import { useEventListener } from '@vueuse/core'
import {
  computed,
  inject,
  nextTick,
  provide,
  shallowRef,
  watch,
  type InjectionKey,
  type Ref,
  type WatchSource,
} from 'vue'
import {
  ancestors,
  isRecord,
  recordsOf,
  type Forest,
  type RecordRow,
  type Row,
} from '../forest/rows'

export type Following = ReturnType<typeof provideFollowing>

const FOLLOWING: InjectionKey<Following> = Symbol('following')

export function useFollowing(): Following {
  return inject(FOLLOWING)!
}

/**
 * The running calls that have no running record below them, the earliest first. The first is the one
 * that the list of runs names, as `tracer.records.pages.open_call`.
 */
export function currentCalls(forest: Forest): RecordRow[] {
  const open: RecordRow[] = []
  const occupied = new Set<Row>()
  for (const row of forest.all) {
    if (!isRecord(row)) continue
    const last = recordsOf(row).findLast(({ status }) => status === 'running')
    if (!last) continue
    if (last === row.record && row.span && isCall(row)) open.push(row)
    for (const above of ancestors(row)) occupied.add(above)
  }
  return open
    .filter((row) => !occupied.has(row))
    .sort((one, other) => one.span!.start - other.span!.start || (one.id < other.id ? -1 : 1))
}

/** The call that began last; null before the first one. */
export function newestCall(forest: Forest): RecordRow | null {
  let found: RecordRow | null = null
  for (const row of forest.all) {
    if (!isRecord(row) || !isCall(row) || !row.span) continue
    // Of calls that began together, the deeper one is below in the order.
    if (found === null || row.span.start >= found.span!.start) found = row
  }
  return found
}

function isCall({ kind }: RecordRow): boolean {
  return kind === 'thinkAct' || kind === 'toolCall'
}

/**
 * @param forest The rows of the tree.
 * @param live Whether the run is running, as far as is known.
 * @param chosen The key of the record that the address names: its reader does not follow at first.
 */
export function provideFollowing(
  forest: Ref<Forest>,
  live: Readonly<Ref<boolean>>,
  chosen: Readonly<Ref<string | null>>,
) {
  const wanted = shallowRef(chosen.value === null)
  const current = computed(() => (live.value ? currentCalls(forest.value) : []))
  const following = computed({
    get: () => live.value && wanted.value,
    set: (value) => (wanted.value = value),
  })
  /** The row to keep in view; null if the reader does not follow. */
  const newest = computed(() => (following.value ? newestCall(forest.value) : null))
  const state = { live, current, following, newest }
  provide(FOLLOWING, state)
  return state
}

/** Keys by which a reader leaves the newest row. */
const UPWARDS = new Set(['ArrowUp', 'PageUp', 'Home'])

/**
 * Keeps the newest row in view, or the row that hides it, until the reader scrolls up.
 *
 * @param watched What moves the rows.
 * @param indexOf The index of a row in the tree; -1 if it is not visible.
 */
export function useNewestInView(
  box: Readonly<Ref<HTMLElement | null>>,
  rowHeight: Readonly<Ref<number>>,
  watched: WatchSource[],
  indexOf: (key: string) => number,
  onScroll: () => void,
) {
  const { following, newest } = useFollowing()

  async function bringIntoView() {
    let row: Row | null = newest.value
    while (row && indexOf(row.key) < 0) row = row.parent
    if (!row) return
    await nextTick()
    const end = (indexOf(row.key) + 1) * rowHeight.value
    const element = box.value
    if (!element || end - element.scrollTop <= element.clientHeight) return
    element.scrollTop = end - element.clientHeight
    onScroll()
  }

  watch([newest, ...watched], bringIntoView, { flush: 'post', immediate: true })

  /** Stops for a wheel, key, finger or scroll bar that moves up. */
  function onInput(event: Event) {
    const isUp =
      event instanceof WheelEvent
        ? event.deltaY < 0
        : event instanceof KeyboardEvent
          ? UPWARDS.has(event.key)
          : event.type === 'touchmove' || event.target === box.value
    if (isUp) following.value = false
  }

  useEventListener(box, ['wheel', 'touchmove', 'pointerdown', 'keydown'], onInput, {
    passive: true,
  })
  return { following, newest }
}
