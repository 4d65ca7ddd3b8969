/** A dialog whose code is loaded when it is first opened. */
import { useEventListener } from '@vueuse/core'
import { defineAsyncComponent, shallowRef, watch, type Component } from 'vue'

export function useLazyDialog<Dialog extends Component>(load: () => Promise<{ default: Dialog }>) {
  const isOpen = shallowRef(false)
  const wasOpen = shallowRef(false)
  /** The text typed before the dialog's field had the keyboard. */
  const typed = shallowRef('')

  watch(
    isOpen,
    (open) => {
      typed.value = ''
      if (open) wasOpen.value = true
    },
    { flush: 'sync' },
  )

  async function loadOrClose() {
    try {
      return await load()
    } catch (error) {
      // The next attempt to open it loads again.
      isOpen.value = wasOpen.value = false
      throw error
    }
  }

  /** Until a control of the dialog has the keyboard, Escape closes it and letters are not commands. */
  function onKeydown(event: KeyboardEvent) {
    const dialog = document.activeElement?.closest('[role="dialog"]')
    // The dialog itself has the keyboard before its field has it.
    if (!isOpen.value || (dialog && document.activeElement !== dialog)) return
    if (event.ctrlKey || event.metaKey || event.altKey) return
    if (event.key === 'Escape') isOpen.value = false
    else if (event.key.length === 1) typed.value += event.key
    else return
    event.preventDefault()
    event.stopPropagation()
  }

  // Before the commands' listener, which is on the document.
  useEventListener(window, 'keydown', onKeydown, { capture: true })

  return {
    Dialog: defineAsyncComponent(loadOrClose),
    isOpen,
    wasOpen,
    typed,
    open: () => void (isOpen.value = true),
  }
}
