/** The messages of a model call and of the agent's call before it, loaded once. */
import { computed, shallowRef, watch, type Ref } from 'vue'
import { readThinkAct } from '../../../api/client'
import type { Failure, Outcome } from '../../../api/outcome'
import type { ThinkActNode, WholeThinkAct } from '../../../api/shapes'
import { divideMessages } from './new-messages'

/** The latest answers by id and status: going through the calls of an agent asks for each once. */
const answers = new Map<string, Promise<Outcome<WholeThinkAct>>>()
const MOST_ANSWERS = 50

function keyOf({ thinkActId, status, finishedAt }: ThinkActNode): string {
  return `${thinkActId} ${status} ${finishedAt}`
}

function read(thinkAct: ThinkActNode): Promise<Outcome<WholeThinkAct>> {
  const key = keyOf(thinkAct)
  const known = answers.get(key)
  if (known) return known
  const answer = readThinkAct(thinkAct.thinkActId)
  answers.set(key, answer)
  void answer.then(({ ok }) => ok || answers.delete(key))
  for (const oldest of answers.keys()) if (answers.size > MOST_ANSWERS) answers.delete(oldest)
  return answer
}

export function useRoundMessages(
  thinkAct: Readonly<Ref<ThinkActNode>>,
  before: Readonly<Ref<ThinkActNode | null>>,
) {
  const whole = shallowRef<WholeThinkAct | null>(null)
  const wholeBefore = shallowRef<WholeThinkAct | null>(null)
  const failure = shallowRef<Failure | null>(null)
  let question = 0

  watch(
    [() => keyOf(thinkAct.value), () => before.value && keyOf(before.value)],
    async () => {
      question += 1
      const asked = question
      const [answer, answerBefore] = await Promise.all([
        read(thinkAct.value),
        before.value ? read(before.value) : null,
      ])
      if (asked !== question) return
      failure.value = answer.ok ? null : answer.failure
      if (answer.ok) whole.value = answer.value
      wholeBefore.value = answerBefore?.ok ? answerBefore.value : null
    },
    { immediate: true },
  )

  const conversation = computed(() => whole.value?.conversation ?? null)
  const told = computed(() => {
    if (conversation.value === null) return null
    const known = before.value ? (wholeBefore.value?.conversation ?? null) : null
    return divideMessages(conversation.value, known)
  })
  return { whole, failure, conversation, told }
}
