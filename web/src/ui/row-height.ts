/** The height of a row in pixels, as the density and the pointer determine it (`styles/tokens.css`). */
import { onScopeDispose, shallowRef, type Ref } from 'vue'

/** The height in an environment without style sheets. */
const STANDARD = 28

export function useRowHeight(): Readonly<Ref<number>> {
  const root = document.documentElement
  const height = shallowRef(measured())

  function measured(): number {
    return Number.parseFloat(getComputedStyle(root).getPropertyValue('--row')) || STANDARD
  }

  const update = () => (height.value = measured())
  const observer = new MutationObserver(update)
  observer.observe(root, { attributes: true, attributeFilter: ['data-density'] })
  const pointer = window.matchMedia('(pointer: coarse)')
  pointer.addEventListener('change', update)
  onScopeDispose(() => {
    observer.disconnect()
    pointer.removeEventListener('change', update)
  })
  return height
}
