import { expect, test } from 'vitest'
import type { Run } from '../api/shapes'
import { picksFor } from './compare-picks'

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
