/** Asking again and again, as long as the page is looked at and there is something to wait for. */
import { useEventListener, useTimeoutFn } from '@vueuse/core'
import { onScopeDispose, shallowRef } from 'vue'

/**
 * Calls `ask` at once and then after each delay in milliseconds that it answers with; null pauses
 * until the reader returns to the page. Never asks twice at a time, and asks again if it was called
 * meanwhile: the changes of a stream must not be missed.
 */
export function usePolling(ask: () => Promise<number | null>): { askNow: () => void } {
  const delay = shallowRef(0)
  const timer = useTimeoutFn(onVisible, delay, { immediate: false })
  let asking = false
  let again = false
  let over = false

  async function run() {
    timer.stop()
    again = asking
    if (asking) return
    asking = true
    const wanted = await ask()
    asking = false
    if (over) return
    if (again) void run()
    else if (wanted !== null) {
      delay.value = wanted
      timer.start()
    }
  }

  /** A hidden page asks when it is shown again. */
  function onVisible() {
    if (!document.hidden) void run()
  }

  useEventListener(document, 'visibilitychange', onVisible)
  // A change of the network's state is a reason to ask at once.
  useEventListener(window, ['online', 'offline'], run)
  onScopeDispose(() => (over = true))
  void run()
  return { askNow: () => void run() }
}

const FIRST_RETRY = 1_000
const LONGEST_RETRY = 10_000

/** How long to wait after so many failures in a row. */
export function retryDelay(failures: number): number {
  return Math.min(FIRST_RETRY * 2 ** Math.max(0, failures - 1), LONGEST_RETRY)
}
