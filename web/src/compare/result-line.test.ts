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
  const summary = { first, models: [], costFactor: null, inherited: 0 }
  return (await mountWith(ResultLine, { summary })).text()
}

test('the sentence names how both records ended only if their outcomes differ', async () => {
  expect(await sentence({ status: 'failed', errorType: 'TimeoutError' })).toBe(
    'Diverged at http_get: succeeded 503ms → TimeoutError 10s.',
  )
  expect(await sentence({ status: 'succeeded', errorType: null })).toBe(
    'First difference at http_get.',
  )
})
