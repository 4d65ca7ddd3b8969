/** The reader's clock, ticking once a second for whatever counts time. */
import { createGlobalState, useTimestamp } from '@vueuse/core'

export const useNow = createGlobalState(() => useTimestamp({ interval: 1_000 }))
