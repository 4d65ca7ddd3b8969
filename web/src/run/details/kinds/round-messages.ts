/** The messages of a model call and of the agent's call before it. */
import { computed, type Ref } from 'vue'
import { readThinkAct } from '../../../api/client'
import { useServerState } from '../../../api/server-state'
import type { ThinkActNode } from '../../../api/shapes'
import { divideMessages } from './new-messages'

/** Reads a whole call once in each of its states: walking through the calls of an agent asks for each once. */
function useRound(thinkAct: Readonly<Ref<ThinkActNode | null>>) {
  return useServerState({
    key: () => {
      const { thinkActId, status, finishedAt } = thinkAct.value ?? {}
      return ['think-act', thinkActId, status, finishedAt]
    },
    ask: () => readThinkAct(thinkAct.value!.thinkActId),
    wanted: () => thinkAct.value !== null,
    fresh: () => Infinity,
  })
}

export function useRoundMessages(
  thinkAct: Readonly<Ref<ThinkActNode>>,
  before: Readonly<Ref<ThinkActNode | null>>,
) {
  const { answer, failure } = useRound(thinkAct)
  const earlier = useRound(before)
  /** The new messages can be determined only if both rounds are loaded. */
  const whole = computed(() => {
    const isComplete = !before.value || earlier.answer.value || earlier.failure.value
    return isComplete ? answer.value : null
  })
  const conversation = computed(() => whole.value?.conversation ?? null)
  const divided = computed(() => {
    if (conversation.value === null) return null
    const known = before.value ? (earlier.answer.value?.conversation ?? null) : null
    return divideMessages(conversation.value, known)
  })
  return { whole, failure, conversation, divided }
}
