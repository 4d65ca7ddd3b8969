// @vitest-environment happy-dom
import { expect, test } from 'vitest'
import { mountWith } from '../ui/mounting'
import ResultLine from './result-line.vue'

async function sentence(right: { status: string; errorType: string | null }) {
  const left = { id: 'one', status: 'succeeded', errorType: null, durationMs: 503 }
  const first = {
    kind: 'toolCall',
    name: 'http_get',
    left,
    right: { id: 'other', durationMs: 10_000, ...right },
  }
  const summary = { first, models: [], costFactor: null }
  return (await mountWith(ResultLine, { summary, differs: new Set(['result', 'duration']) })).text()
}

test('the sentence names how both records ended, or what else differs', async () => {
  expect(await sentence({ status: 'failed', errorType: 'TimeoutError' })).toBe(
    'The runs diverge at http_get: succeeded 503ms → TimeoutError 10s.',
  )
  expect(await sentence({ status: 'succeeded', errorType: null })).toBe(
    'The runs diverge at http_get: result.',
  )
})
