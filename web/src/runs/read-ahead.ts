/** Reads a run, and the code of its page, while its row is pointed at. */
import { useQueryClient } from '@tanstack/vue-query'
import { useTimeoutFn } from '@vueuse/core'
import { loadRouteLocation, useRouter } from 'vue-router'
import { prefetchRun } from '../api/run-prefetch'
import type { Run } from '../api/shapes'

/** A row that the pointer only passes is not read. */
const PASSING = 80

export function useReadAhead(): (run: Run) => void {
  const client = useQueryClient()
  const router = useRouter()
  let pointed: Run | null = null
  const reading = useTimeoutFn(read, PASSING, { immediate: false })

  function read() {
    if (!pointed) return
    prefetchRun(client, pointed)
    const { rootPlanId } = pointed
    void loadRouteLocation(router.resolve({ name: 'run', params: { rootPlanId } }))
  }

  return (run) => {
    pointed = run
    reading.start()
  }
}
