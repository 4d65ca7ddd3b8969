/** The failures of the shown run, and where each of them began. */
import { computed, inject, provide, type InjectionKey, type Ref } from 'vue'
import { countsBelow, failures, isBad, originOf } from './failures'
import { isRecord, type Forest, type Row } from './rows'

export type RunFailures = ReturnType<typeof provideFailures>

const FAILURES: InjectionKey<RunFailures> = Symbol('failures')

export function useFailures(): RunFailures {
  return inject(FAILURES)!
}

export function provideFailures(forest: Ref<Forest>) {
  const failed = computed(() => failures(forest.value.all))
  const failedBelow = computed(() => countsBelow(failed.value.map(({ row }) => row)))
  const unhandledBelow = computed(() =>
    countsBelow(failed.value.filter(({ isHandled }) => !isHandled).map(({ row }) => row)),
  )
  const failedByKey = computed(() => new Map(failed.value.map((each) => [each.row.key, each])))
  const origin = computed(() => originOf(forest.value, failed.value))

  /** Whether a failure began at a row, or somewhere below it. */
  function failureOf(row: Row): 'here' | 'handled' | 'below' | null {
    const failure = failedByKey.value.get(row.key)
    if (failure) return failure.isHandled ? 'handled' : 'here'
    // An agent that continued despite a failure below did not fail itself.
    const hasFailed = isRecord(row) && isBad(row.record.status)
    const passesOn = row.kind === 'thinkAct' && unhandledBelow.value.has(row.key)
    return (hasFailed || passesOn) && failedBelow.value.has(row.key) ? 'below' : null
  }

  const found = { failed, failedBelow, failureOf, origin }
  provide(FAILURES, found)
  return found
}
