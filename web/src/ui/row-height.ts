/** The height of a row in pixels, as the density and the pointer determine it (`styles/tokens.css`). */
import { useMediaQuery, useMutationObserver } from '@vueuse/core'
import { shallowRef, watch, type Ref } from 'vue'

/** The height in an environment without style sheets. */
const STANDARD = 28

export function useRowHeight(): Readonly<Ref<number>> {
  const root = document.documentElement
  const height = shallowRef(STANDARD)
  function measure() {
    const row = getComputedStyle(root).getPropertyValue('--row')
    height.value = Number.parseFloat(row) || STANDARD
  }
  useMutationObserver(root, measure, { attributeFilter: ['data-density'] })
  watch(useMediaQuery('(pointer: coarse)'), measure, { immediate: true, flush: 'sync' })
  return height
}
