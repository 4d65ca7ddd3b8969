/** Acting while an element is about to be scrolled into view. */
import { onBeforeUnmount, shallowRef, watch, type Ref } from 'vue'

const AHEAD = '600px'

/**
 * Calls `act` when the element comes near, and again whenever `grown` changes while it stays so.
 *
 * @param grown Changes when acting had an effect; without one it is not tried again.
 */
export function useNearViewport(
  element: Ref<Element | null>,
  grown: () => unknown,
  act: () => void,
) {
  const isNear = shallowRef(false)
  const observer = new IntersectionObserver(
    (entries) => (isNear.value = entries.at(-1)!.isIntersecting),
    { rootMargin: AHEAD },
  )

  watch(element, (now, before) => {
    if (before) observer.unobserve(before)
    if (now) observer.observe(now)
    else isNear.value = false
  })
  watch([isNear, grown], () => isNear.value && act(), { flush: 'post' })
  onBeforeUnmount(() => observer.disconnect())
}
