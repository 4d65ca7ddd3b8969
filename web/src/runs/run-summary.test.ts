// @vitest-environment happy-dom
import { expect, test } from 'vitest'
import type { Run } from '../api/shapes'
import { mountWith } from '../ui/mounting'
import { useNow } from '../ui/now'
import RunSummary from './run-summary.vue'

function summaryOf(fields: Partial<Run>, language: 'en' | 'zh-CN' = 'en') {
  const none = { failures: 0, handledFailures: 0, seenAt: null }
  return mountWith(RunSummary, { run: { rootPlanId: 'root', ...none, ...fields } as Run }, language)
}

async function lineOf(fields: Partial<Run>, language: 'en' | 'zh-CN' = 'en') {
  return (await summaryOf(fields, language)).get('.more')
}

test('the line of an abandoned run has its status as a word, which is explained', async () => {
  // By the component's clock, which ticks once a second. Half an hour from the next full hour.
  const seenAt = new Date(useNow().value - 91_800_000).toISOString()
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

test('a failure is called handled when the run has ended, not before', async () => {
  const failed = { failures: 1, handledFailures: 1 }

  expect((await summaryOf({ status: 'running', ...failed })).text()).toBe('Untitled runFailures 1')
  expect((await summaryOf({ status: 'succeeded', ...failed })).text()).toBe(
    'Untitled run1 handled failure',
  )
})
