/** Reads a run, and the code of its page, while its row is pointed at. */
import { useQueryClient } from '@tanstack/vue-query'
import { useDebounceFn } from '@vueuse/core'
import { loadRouteLocation, useRouter } from 'vue-router'
import { readRunAhead } from '../api/run-ahead'
import type { Run } from '../api/shapes'

/** A row that the pointer only passes is not read. */
const PASSING = 80

export function useReadAhead(): (run: Run) => void {
  const client = useQueryClient()
  const router = useRouter()
  const read = useDebounceFn((run: Run) => {
    readRunAhead(client, run)
    const { rootPlanId } = run
    void loadRouteLocation(router.resolve({ name: 'run', params: { rootPlanId } }))
  }, PASSING)
  return (run) => void read(run)
}
