import { expect, test } from 'vitest'
import { forestOf, plan, step, toolCall } from '../forest/example-tree'
import { isRecord } from '../forest/rows'
import { asRecorded } from './recorded-times'

const times = {
  startedAt: '2026-11-21T22:21:53.000250Z',
  finishedAt: '2026-11-21T22:21:54.000000Z',
}

function timesOf(key: string, shift: number | null) {
  const call = toolCall('call', { ...times, clockShiftUs: shift })
  const tree = plan('root', { agentExecutions: [step('step', { toolCalls: [call] })] })
  const row = asRecorded(forestOf(tree)).byKey.get(key)
  if (!row || !isRecord(row)) throw new Error(`no row ${key}`)
  return row
}

test('a recorded time is the corrected one without its shift, to the microsecond', () => {
  const later = timesOf('call', 1_000_500)
  expect(later.record.startedAt).toBe('2026-11-21T22:21:51.999750Z')
  expect(later.record.finishedAt).toBe('2026-11-21T22:21:52.999500Z')
  expect(later.span!.start).toBe(Date.UTC(2026, 10, 21, 22, 21, 51, 999) + 0.75)

  const earlier = timesOf('call', -250)
  expect(earlier.record.startedAt).toBe('2026-11-21T22:21:53.000500Z')
})

test('times that were not corrected stay', () => {
  expect(timesOf('call', null).record.startedAt).toBe(times.startedAt)
  expect(timesOf('step', 1_000_500).record.startedAt).toBe('2026-11-21T22:21:52.462812Z')
})

test('rows keep their parents', () => {
  expect(timesOf('call', 5).parent!.key).toBe('step')
})
