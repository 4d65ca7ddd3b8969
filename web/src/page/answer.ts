/** One question to the API, asked again when it changes, and repeatedly while it is shown. */
import { shallowRef, watch, type Ref } from 'vue'
import type { Failure, Outcome } from '../api/outcome'
import { retryDelay, usePolling } from './polling'

/**
 * @param question The question; its answer is shown until the next one has been answered.
 * @param ask Asks it.
 * @param delay After how many milliseconds to ask again; null for never.
 */
export function useAnswer<Question, Answer>(
  question: Readonly<Ref<Question>>,
  ask: (question: Question) => Promise<Outcome<Answer>>,
  delay: (answer: Answer) => number | null,
) {
  const answer = shallowRef<Answer | null>(null)
  /** The question of the answer; null before the first one. */
  const answered = shallowRef<Question | null>(null)
  const failure = shallowRef<Failure | null>(null)
  const answeredAt = shallowRef(0)
  let failures = 0

  const { askNow } = usePolling(async () => {
    const asked = question.value
    const outcome = await ask(asked)
    // The question has changed; the change has started another request.
    if (asked !== question.value) return 0
    if (!outcome.ok) {
      failure.value = outcome.failure
      failures += 1
      return outcome.failure.kind === 'notFound' ? null : retryDelay(failures)
    }
    answer.value = outcome.value
    answered.value = asked
    failure.value = null
    failures = 0
    answeredAt.value = Date.now()
    return delay(outcome.value)
  })
  watch(question, askNow)
  return { answer, answered, failure, answeredAt, askNow }
}
