/** The results of the palette. */
import { refDebounced } from '@vueuse/core'
import { computed, type Ref } from 'vue'
import { useI18n } from 'vue-i18n'
import { findRecords, listRuns, readToolStats } from '../api/client'
import { useServerState } from '../api/server-state'
import { COMMAND_NAMES, type CommandName } from '../lib/commands'
import { performable } from '../page/commands'
import { agentsOf, isId, matching, SHOWN_OF_GROUP } from './palette-items'
import { hasWord } from '../lib/text-search'

/** How long after the last letter the server is asked, in milliseconds. */
const SETTLE = 150
/** The newest runs, whose agents are found by their names. */
const RECENT = 100

/** Commands that make no sense in the palette. */
const BY_KEY_ONLY = new Set<CommandName>(['palette', 'nextRow', 'previousRow', 'pick'])

export function useResults(typed: Readonly<Ref<string>>) {
  const { t } = useI18n()
  const query = refDebounced(typed, SETTLE)
  const recent = useServerState({
    key: () => ['palette', 'recent'],
    ask: () => listRuns({ limit: RECENT }),
  })
  const tools = useServerState({
    key: () => ['palette', 'tools'],
    ask: () => readToolStats({ from: null, to: null }),
  })
  const found = useServerState({
    key: () => ['palette', 'runs', query.value.trim()],
    ask: () => runsFor(query.value.trim()),
  })
  const foundRecords = useServerState({
    key: () => ['palette', 'id', query.value.trim()],
    ask: async () => {
      const id = query.value.trim()
      return isId(id) ? findRecords(id) : { ok: true, value: { items: [] } }
    },
  })

  const commands = computed(() => {
    const names = COMMAND_NAMES.filter(
      (name) => !BY_KEY_ONLY.has(name) && name in performable.value,
    )
    return matching(names, (name) => t(`keys.${name}`), typed.value)
  })
  const records = computed(() =>
    foundRecords.isStale.value ? [] : (foundRecords.answer.value?.items ?? []),
  )
  const isSettled = computed(
    () => typed.value === query.value && !found.isStale.value && !foundRecords.isStale.value,
  )
  const runs = computed(() => {
    const items = found.answer.value?.items ?? []
    // Enter must not open a run that only an earlier query found.
    return isSettled.value ? items : matching(items, (run) => run.title ?? '', typed.value)
  })
  const agents = computed(() =>
    typed.value.trim() === ''
      ? []
      : matching(
          agentsOf([...(recent.answer.value?.items ?? []), ...runs.value]),
          (name) => name,
          typed.value,
        ).slice(0, SHOWN_OF_GROUP),
  )
  const toolNames = computed(() =>
    typed.value.trim() === ''
      ? []
      : matching(
          (tools.answer.value?.items ?? []).map((tool) => tool.name),
          (name) => name,
          typed.value,
        ).slice(0, SHOWN_OF_GROUP),
  )
  const count = computed(
    () =>
      commands.value.length +
      runs.value.length +
      agents.value.length +
      toolNames.value.length +
      records.value.length,
  )
  return {
    records,
    commands,
    runs,
    agents,
    toolNames,
    failure: found.failure,
    isSettled,
    count,
  }
}

function runsFor(text: string) {
  return listRuns(hasWord(text) ? { q: text, limit: SHOWN_OF_GROUP } : { limit: 5 })
}
