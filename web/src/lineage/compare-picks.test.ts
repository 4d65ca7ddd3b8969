import { expect, test } from 'vitest'
import type { Run } from '../api/shapes'
import { oldestFirst, picksFor, picksWith, readPicks, writePicks } from './compare-picks'

function run(rootPlanId: string, title: string, startedAt: string | null): Run {
  return { rootPlanId, title, startedAt } as Run
}

const ONE = run('one', 'Weekly', '2026-01-02T00:00:00Z')
const OLDER = run('older', 'Weekly', '2026-01-01T00:00:00Z')
const NEWER = run('newer', 'Daily', '2026-01-03T00:00:00Z')

test('those of the same title come first, each once, and never the run itself', () => {
  const picks = picksFor(
    ONE,
    [
      [ONE, OLDER],
      [NEWER, ONE, OLDER],
    ],
    10,
  )

  expect(picks.map((pick) => [pick.run.rootPlanId, pick.sameTitle])).toEqual([
    ['older', true],
    ['newer', false],
  ])
})

test('what was before is on the left', () => {
  const [older, newer] = picksFor(ONE, [[OLDER, NEWER]], 10)

  expect([older!.left, older!.right]).toEqual(['older', 'one'])
  expect([newer!.left, newer!.right]).toEqual(['one', 'newer'])
  expect(picksFor(ONE, [[run('open', 'x', null)]], 1)[0]!.right).toBe('open')
})

const IDS = ['1', '2', '3'].map((digit) => `01a20233-9c2f-77eb-85ea-${digit.repeat(12)}`)

test('what is picked comes back from an address as it was put there', () => {
  for (const picked of [[], IDS.slice(0, 1), IDS.slice(0, 2)]) {
    expect(readPicks(writePicks(picked))).toEqual(picked)
  }
  expect(writePicks([])).toBeNull()
})

test('an address picks no more than two runs, each once, and no nonsense', () => {
  expect(readPicks(IDS.join('.'))).toEqual(IDS.slice(0, 2))
  expect(readPicks(`${IDS[0]}.${IDS[0]}.${IDS[1]}`)).toEqual(IDS.slice(0, 2))
  expect(readPicks('one..<script>')).toEqual([])
  expect(readPicks(null)).toEqual([])
})

test('whoever picks a third changes the second', () => {
  expect(picksWith(['one'], 'two')).toEqual(['one', 'two'])
  expect(picksWith(['one', 'two'], 'three')).toEqual(['one', 'three'])
})

test('what is picked and not listed any more is older than what is', () => {
  expect(oldestFirst(['new', 'old'], ['new', 'old'])).toEqual(['old', 'new'])
  expect(oldestFirst(['new', 'gone'], ['new'])).toEqual(['gone', 'new'])
  expect(oldestFirst(['gone', 'new'], ['new'])).toEqual(['gone', 'new'])
})
