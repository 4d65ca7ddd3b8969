/** The times of a run's records as they were recorded, before the server corrected the clocks. */
import { computed, inject, provide, type InjectionKey, type Ref } from 'vue'
import type { TreeNode } from '../../api/shapes'
import { useAddress } from '../../page/address'
import { buildForest } from '../forest/build-forest'
import { keyOf } from '../forest/records'
import { isRecord, type Forest } from '../forest/rows'
import { momentOf } from '../forest/spans'

export type RecordedTimes = ReturnType<typeof provideRecordedTimes>

const RECORDED_TIMES: InjectionKey<RecordedTimes> = Symbol('recorded times')

/** Whether recorded times are shown, and whether they differ; null outside of a run's page. */
export function useRecordedTimes(): RecordedTimes | null {
  return inject(RECORDED_TIMES, null)
}

/**
 * Lets the reader choose between corrected and recorded times, in the URL as `?times=recorded`.
 *
 * @param corrected The rows with the times that the server sends.
 */
export function provideRecordedTimes(corrected: Ref<Forest>) {
  const chosen = useAddress(
    'times',
    'replace',
    (text) => text === 'recorded',
    (recorded) => (recorded ? 'recorded' : null),
  )
  const areCorrected = computed(() =>
    corrected.value.all.some((row) => isRecord(row) && row.record.clockShiftUs !== null),
  )
  const forest = computed(() =>
    chosen.value && areCorrected.value ? asRecorded(corrected.value) : corrected.value,
  )
  const times = { forest, chosen, areCorrected }
  provide(RECORDED_TIMES, times)
  return times
}

/** The same rows with the times that the records' own processes wrote. */
export function asRecorded(corrected: Forest): Forest {
  const top = corrected.tops[0]
  if (!top) return corrected
  const records = corrected.all.filter(isRecord).map(({ record }) => record)
  const own = new Map(records.map((each) => [keyOf(each), withOwnTimes(each)]))
  const forest = buildForest(own, top.key)
  // Times do not change totals, which also count spans without records.
  Object.assign(forest.tops[0]!, { own: top.own, cumulative: top.cumulative })
  return forest
}

function withOwnTimes(record: TreeNode): TreeNode {
  const shift = record.clockShiftUs
  if (shift === null) return record
  return {
    ...record,
    startedAt: earlier(record.startedAt, shift),
    finishedAt: earlier(record.finishedAt, shift),
  }
}

/** A moment without the microseconds that were added to it. */
function earlier(moment: string | null, shift: number): string | null {
  const milliseconds = momentOf(moment)
  if (milliseconds === null) return null
  const microseconds = Math.round(milliseconds * 1000) - shift
  const whole = Math.floor(microseconds / 1000)
  const rest = String(microseconds - whole * 1000).padStart(3, '0')
  return new Date(whole).toISOString().replace('Z', `${rest}Z`)
}
