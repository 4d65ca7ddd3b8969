/** Drawing as often as there is news, but leaving the page time for its reader. */
import { onScopeDispose } from 'vue'

/** How many times as long as it drew it rests. */
const REST = 1

/** Gives what to call where there is news; `draw` is called at once or when the rest is over. */
export function usePace(draw: () => Promise<void>): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined
  let restsUntil = 0

  async function run() {
    timer = undefined
    const began = performance.now()
    await draw()
    const ended = performance.now()
    restsUntil = ended + REST * (ended - began)
  }

  onScopeDispose(() => clearTimeout(timer))
  return () => {
    if (timer !== undefined) return
    const rest = restsUntil - performance.now()
    if (rest > 0) timer = setTimeout(run, rest)
    else void run()
  }
}
