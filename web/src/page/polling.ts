/** Asking again and again, as long as the page is looked at and there is something to wait for. */
import { onScopeDispose } from 'vue'

/**
 * Calls `ask` at once and then after each delay in milliseconds that it answers with; null pauses
 * until the reader returns to the page. Never asks twice at a time.
 */
export function usePolling(ask: () => Promise<number | null>): { askNow: () => void } {
  let timer: ReturnType<typeof setTimeout> | undefined
  let asking = false
  let again = false
  let over = false

  async function run() {
    clearTimeout(timer)
    if (asking) {
      again = true
      return
    }
    asking = true
    const delay = await ask()
    asking = false
    if (over) return
    if (again) {
      again = false
      void run()
    } else if (delay !== null) {
      timer = setTimeout(onTime, delay)
    }
  }

  function onTime() {
    // A hidden page asks when it is shown again.
    if (!document.hidden) void run()
  }

  function onVisibility() {
    if (!document.hidden) void run()
  }

  document.addEventListener('visibilitychange', onVisibility)
  // A change of the network's state is a reason to ask at once.
  window.addEventListener('online', run)
  window.addEventListener('offline', run)
  onScopeDispose(() => {
    over = true
    clearTimeout(timer)
    document.removeEventListener('visibilitychange', onVisibility)
    window.removeEventListener('online', run)
    window.removeEventListener('offline', run)
  })
  void run()
  return { askNow: () => void run() }
}

const FIRST_RETRY = 1_000
const LONGEST_RETRY = 10_000

/** How long to wait after so many failures in a row. */
export function retryDelay(failures: number): number {
  return Math.min(FIRST_RETRY * 2 ** Math.max(0, failures - 1), LONGEST_RETRY)
}
