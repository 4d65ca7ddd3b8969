import { expect, test } from 'vitest'
import type { Run } from '../api/shapes'
import { picksFor, previousOf } from './compare-picks'

function run(
  rootPlanId: string,
  title: string,
  startedAt: string | null,
  sessionId: string | null = null,
): Run {
  return { rootPlanId, title, startedAt, sessionId } as Run
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

  expect(picks.map((pick) => [pick.run.rootPlanId, pick.relation])).toEqual([
    ['older', 'title'],
    ['newer', 'agent'],
  ])
})

test('the older run is on the left', () => {
  const [older, newer] = picksFor(ONE, [[OLDER, NEWER]], 10)

  expect([older!.left, older!.right]).toEqual(['older', 'one'])
  expect([newer!.left, newer!.right]).toEqual(['one', 'newer'])
  expect(picksFor(ONE, [[run('open', 'x', null)]], 1)[0]!.right).toBe('open')
})

test('the previous run is the latest earlier one of the session, else of the title', () => {
  const at = (day: number) => `2026-02-0${day}T00:00:00Z`
  const one = run('one', 'Weekly', at(5), 's')
  const others = [
    run('after', 'x', at(6), 's'),
    run('title', 'Weekly', at(4)),
    run('session', 'x', at(3), 's'),
    run('first', 'x', at(2), 's'),
    run('agent', 'x', at(4)),
  ]
  const previous = (lists: Run[]) => previousOf(picksFor(one, [lists], 10))?.run.rootPlanId

  expect(previous(others)).toBe('session')
  expect(previous([others[0]!, others[1]!])).toBe('title')
  expect(previous([others[0]!, others[4]!])).toBeUndefined()
})
