/** The reader's clock, ticking once a second for whatever counts time. */
import { shallowRef, type Ref } from 'vue'

const now = shallowRef(Date.now())
let ticking = false

export function useNow(): Readonly<Ref<number>> {
  if (!ticking) {
    ticking = true
    setInterval(() => (now.value = Date.now()), 1_000)
  }
  return now
}
