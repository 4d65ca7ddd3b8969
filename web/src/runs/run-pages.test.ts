import { expect, test } from 'vitest'
import type { Run, RunPage } from '../api/shapes'
import { appendPage, below, newerThan, NO_RUNS, refreshPage, worthReading } from './run-pages'

/** When the run was recorded that is called so. */
function at(id: string): string {
  return new Date(Date.UTC(2026, 0, id.charCodeAt(0) - 96)).toISOString()
}

function page(ids: string, nextCursor: string | null, title = 'before'): RunPage {
  const items = [...ids].map((id) => ({ rootPlanId: id, title, recordedAt: at(id) }) as Run)
  return { items, nextCursor, searchedBackTo: null, indexedUpTo: null }
}

function ids(of: RunPage): string {
  return of.items.map((run) => run.rootPlanId).join('')
}

test('a further page goes below, each run once', () => {
  const both = appendPage(page('dc', 'c'), page('cba', null))

  expect(ids(both)).toBe('dcba')
  expect(both.nextCursor).toBeNull()
})

test('new runs come in on top and older loaded ones stay', () => {
  const after = refreshPage(page('dcba', 'a'), page('edc', 'c', 'after'))

  expect(ids(after)).toBe('edcba')
  expect(after.items.map((run) => run.title)).toEqual([
    'after',
    'after',
    'after',
    'before',
    'before',
  ])
  expect(after.nextCursor).toBe('a')
})

test('a deleted run goes away', () => {
  expect(ids(refreshPage(page('dcba', 'a'), page('db', 'b')))).toBe('dba')
  expect(ids(refreshPage(page('dcba', null), page('', null)))).toBe('')
  expect(ids(refreshPage(page('dcba', null), page('cb', null)))).toBe('cb')
})

test('where more runs came than a page holds none is skipped', () => {
  const after = refreshPage(page('ba', null), page('fed', 'd'))

  expect(ids(after)).toBe('fed')
  expect(after.nextCursor).toBe('d')
})

test('what a search found again is taken over as far as it got, and older finds stay', () => {
  const searched = (ids: string, to: string): RunPage => ({
    ...page(ids, 'further'),
    searchedBackTo: at(to),
  })
  const loaded = appendPage(searched('', 'g'), searched('ca', 'a'))

  expect(ids(refreshPage(loaded, searched('', 'g')))).toBe('ca')
  expect(ids(refreshPage(loaded, searched('h', 'g')))).toBe('hca')
  expect(ids(refreshPage(loaded, searched('h', 'b')))).toBe('ha')
  expect(refreshPage(loaded, searched('h', 'g')).searchedBackTo).toBe(at('a'))
})

test('the list goes by when runs started, whenever they were recorded', () => {
  const started = { ...page('z', null).items[0]!, startedAt: at('b') }
  const fresh = { ...page('', 'further'), searchedBackTo: at('c') }

  expect(ids(refreshPage({ ...NO_RUNS, items: [started] }, fresh))).toBe('z')
})

test('the first page is taken as it is', () => {
  expect(refreshPage(NO_RUNS, page('ba', 'a'))).toEqual(page('ba', 'a'))
})

test('new runs wait above the one that was on top, until that one is gone', () => {
  expect(below(page('edcba', null), 'c').waiting).toBe(2)
  expect(below(page('edcba', null), 'c').runs.map((run) => run.rootPlanId)).toEqual([...'cba'])
  expect(below(page('edcba', null), 'e').waiting).toBe(0)
  for (const top of [null, 'z']) expect(below(page('cba', null), top).runs).toHaveLength(3)
})

test('new runs are those that start after the latest known, without those that move up', () => {
  const newer = (before: string, now: string, listed = '') =>
    newerThan(page(before, null).items, page(now, null).items, page(listed, null).items)
      .map((run) => run.rootPlanId)
      .join('')

  expect(newer('dc', 'fed')).toBe('fe')
  expect(newer('dc', 'ca')).toBe('')
  expect(newer('dc', 'ed', 'e')).toBe('')
  expect(newer('', 'a')).toBe('a')
})

test('as many runs are read again as may still change, and new ones may come', () => {
  const running = (at: number): RunPage => ({
    items: Array.from(
      { length: 400 },
      (_, index) =>
        ({ rootPlanId: `${index}`, status: index === at ? 'running' : 'succeeded' }) as Run,
    ),
    nextCursor: null,
    searchedBackTo: null,
    indexedUpTo: null,
  })

  expect(worthReading(NO_RUNS, 50, 300)).toBe(50)
  expect(worthReading(running(-1), 50, 300)).toBe(50)
  expect(worthReading(running(119), 50, 300)).toBe(120)
  expect(worthReading(running(399), 50, 300)).toBe(300)
})
