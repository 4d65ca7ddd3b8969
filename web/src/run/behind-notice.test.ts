// @vitest-environment happy-dom
import { expect, test } from 'vitest'
import BehindNotice from './behind-notice.vue'
import { nested } from './forest/example-tree'
import { mountInRun } from './forest/mounting'

const behind = { spans: 6000, since: '2026-11-21T22:21:52Z' }

async function notice(run: object, language: 'en' | 'zh-CN' = 'en') {
  return (await mountInRun(BehindNotice, { run }, nested(), language)).text()
}

test('a run that shows all its spans has no notice', async () => {
  expect(await notice({ behind: null, projectionError: null })).toBe('')
})

test('a run that is behind says how many spans are missing', async () => {
  expect(await notice({ behind, projectionError: null })).toContain('6,000 spans')
  expect(await notice({ behind: { ...behind, spans: 1 } })).toContain('1 span ')
  expect(await notice({ behind, projectionError: null }, 'zh-CN')).toContain('6,000 个 span')
})

test('a run whose projection failed says why', async () => {
  expect(await notice({ behind, projectionError: 'KeyError in genai.py' })).toBe(
    'The newest spans could not be turned into records: KeyError in genai.py',
  )
})
