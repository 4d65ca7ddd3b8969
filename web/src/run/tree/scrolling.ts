/** The row that a reader looks at, and its position after rows appeared or disappeared. */
import { useResizeObserver } from '@vueuse/core'
import { onMounted, shallowRef, type Ref } from 'vue'
import type { Row } from '../forest/rows'

export interface Anchor {
  key: string
  /** How many pixels it lies below the top of the view. */
  offset: number
  /** The keys of its ancestors, nearest first, should it be closed away. */
  above: readonly string[]
}

export interface View {
  scrollTop: number
  height: number
  rowHeight: number
}

/**
 * The row that must not move: the selected one if it is in view, else the first in
 * view; null at the very top, which stays the top whatever comes.
 */
export function anchorRow(
  rows: readonly Row[],
  selected: string | null,
  view: View,
): Anchor | null {
  const { scrollTop, height, rowHeight } = view
  if (scrollTop <= 0) return null
  const first = Math.floor(scrollTop / rowHeight)
  const inView = rows.slice(first, Math.ceil((scrollTop + height) / rowHeight))
  const index = Math.max(
    0,
    inView.findIndex((row) => row.key === selected),
  )
  const row = inView[index]
  if (!row) return null
  const above: string[] = []
  for (let each = row.parent; each; each = each.parent) above.push(each.key)
  return { key: row.key, offset: (first + index) * rowHeight - scrollTop, above }
}

/** The scroll position at which the row has not moved; null if no row of it is left. */
export function scrollTopFor(
  rows: readonly Row[],
  anchor: Anchor | null,
  rowHeight: number,
): number | null {
  if (anchor === null) return null
  for (const key of [anchor.key, ...anchor.above]) {
    const index = rows.findIndex((row) => row.key === key)
    if (index >= 0) return index * rowHeight - anchor.offset
  }
  return null
}

/** Returns the height of the tree's box in pixels, and keeps `capacity` at the rows that fit it. */
export function useTreeHeight(
  box: Readonly<Ref<HTMLElement | null>>,
  rowHeight: Readonly<Ref<number>>,
  capacity: Ref<number>,
): Readonly<Ref<number>> {
  const height = shallowRef(0)
  function measure() {
    height.value = box.value?.clientHeight ?? 0
    capacity.value = Math.max(1, Math.floor(height.value / rowHeight.value))
  }
  onMounted(measure)
  useResizeObserver(box, measure)
  return height
}
