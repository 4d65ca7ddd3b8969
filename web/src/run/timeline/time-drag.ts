/** Moving in time by dragging the waterfall's rows, with a mouse, a pen or a finger. */
import { shallowRef } from 'vue'
import { panned, type TimeWindow } from './time-scale'

/** A shorter stroke is a click. */
const SHORTEST_STROKE = 4

interface Drag {
  pointerId: number
  startX: number
  width: number
  shown: TimeWindow
}

interface DraggedTime {
  chosen: { readonly value: TimeWindow | null }
  shown: { readonly value: TimeWindow }
  show: (wished: TimeWindow) => void
}

/**
 * What to do where pointers go down, move and go up over the rows. A drag ends in no click, and
 * what does not move far enough is nothing but its click.
 */
export function useTimeDrag(time: DraggedTime) {
  let drag: Drag | null = null
  let endedInDrag = false
  const isDragged = shallowRef(false)

  function onDown(event: PointerEvent) {
    endedInDrag = false
    const lane = event.target instanceof Element ? event.target.closest('[data-lane]') : null
    // All of the time cannot be moved, and a second finger is not for this.
    if (!lane || event.button !== 0 || !event.isPrimary || time.chosen.value === null) return
    drag = {
      pointerId: event.pointerId,
      startX: event.clientX,
      width: lane.getBoundingClientRect().width,
      shown: time.shown.value,
    }
  }

  function onMove(event: PointerEvent) {
    if (drag?.pointerId !== event.pointerId || drag.width === 0) return
    const distance = event.clientX - drag.startX
    if (!isDragged.value) {
      if (Math.abs(distance) < SHORTEST_STROKE) return
      isDragged.value = true
      ;(event.currentTarget as Element).setPointerCapture(event.pointerId)
    }
    time.show(panned(drag.shown, -distance / drag.width))
  }

  function onEnd() {
    endedInDrag = isDragged.value
    isDragged.value = false
    drag = null
  }

  function onClick(event: MouseEvent) {
    if (endedInDrag) event.stopPropagation()
    endedInDrag = false
  }

  return { isDragged, onDown, onMove, onEnd, onClick }
}
