/** The keyboard goes into a panel that it opened, and back to the link when the panel closes. */
import { onBeforeUnmount, onMounted, onUnmounted, watch, type Ref } from 'vue'

export function usePanelFocus(
  panel: Readonly<Ref<HTMLElement | null>>,
  shown: () => unknown,
): void {
  let opener: HTMLElement | null = null
  let hadFocus = false

  function enter() {
    const link = document.activeElement
    if (!(link instanceof HTMLElement) || !link.matches('tbody a:focus-visible')) return
    if (panel.value?.contains(link)) return
    opener = link
    panel.value?.focus({ preventScroll: true })
  }

  onMounted(enter)
  watch(shown, enter, { flush: 'post' })
  onBeforeUnmount(() => (hadFocus = panel.value?.contains(document.activeElement) ?? false))
  // On a narrow page the link can take the focus only when the panel is gone.
  onUnmounted(() => hadFocus && opener?.focus())
}
