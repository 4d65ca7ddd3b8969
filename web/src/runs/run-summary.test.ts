// @vitest-environment happy-dom
import { expect, test } from 'vitest'
import type { Run } from '../api/shapes'
import { mountWith } from '../ui/mounting'
import RunSummary from './run-summary.vue'

async function lineOf(fields: Partial<Run>, language: 'en' | 'zh-CN' = 'en') {
  const run = { rootPlanId: 'root', handledFailures: 0, seenAt: null, ...fields } as Run
  return (await mountWith(RunSummary, { run }, language)).get('.more')
}

test('the line of an abandoned run has its status as a word, which is explained', async () => {
  const seenAt = new Date(Date.now() - 90_000_000).toISOString()
  const openCall = { name: 'check', kind: 'toolCall' } as Run['openCall']
  const line = await lineOf({ status: 'abandoned', seenAt })

  expect(line.text()).toBe('abandoned · no heartbeat for 1d 1h')
  expect(line.get('.status').attributes('title')).toContain('stopped sending heartbeats')
  expect((await lineOf({ status: 'abandoned' }, 'zh-CN')).text()).toBe('已中断')
  expect((await lineOf({ status: 'abandoned', openCall })).text()).toBe(
    'abandoned · The process was lost during check',
  )
  expect((await lineOf({ status: 'running', seenAt })).text()).toBe('no heartbeat for 1d 1h')
})
