/** Why a record is abandoned: the lease of whoever left it open, where the server has it. */
import { shallowRef, watch, type Ref } from 'vue'
import { listLeases } from '../../api/client'
import type { Lease } from '../../api/shapes'

/** @param abandonedAt When the lease ran out; null where nothing is to be explained. */
export function useLease(
  rootPlanId: Readonly<Ref<string | null>>,
  abandonedAt: Readonly<Ref<string | null>>,
) {
  const lease = shallowRef<Lease | null>(null)
  let question = 0
  watch(
    [rootPlanId, abandonedAt],
    async ([root, ranOut]) => {
      lease.value = null
      question += 1
      const asked = question
      if (root === null || ranOut === null) return
      const answer = await listLeases(root)
      if (asked !== question || !answer.ok) return
      const moment = Date.parse(ranOut)
      lease.value = answer.value.items.find((each) => Date.parse(each.expiresAt) === moment) ?? null
    },
    { immediate: true },
  )
  return lease
}
