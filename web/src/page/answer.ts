/** One question to the API, asked anew when it changes and again and again while it is shown. */
import { shallowRef, watch, type Ref } from 'vue'
import type { Failure, Outcome } from '../api/outcome'
import { retryDelay, usePolling } from './polling'

/**
 * @param question What is asked; its answer is shown until that to another one has come.
 * @param ask Asks it.
 * @param delay After how many milliseconds an answer is asked for again; null where it stays.
 */
export function useAnswer<Question, Answer>(
  question: Readonly<Ref<Question>>,
  ask: (question: Question) => Promise<Outcome<Answer>>,
  delay: (answer: Answer) => number | null,
) {
  const answer = shallowRef<Answer | null>(null)
  /** Which question the answer is to; null while there is none. */
  const answered = shallowRef<Question | null>(null)
  const failure = shallowRef<Failure | null>(null)
  const answeredAt = shallowRef(0)
  let failures = 0

  const { askNow } = usePolling(async () => {
    const asked = question.value
    const outcome = await ask(asked)
    // It has changed meanwhile, and whoever changed it asks again.
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
