import { expect, test } from 'vitest'
import { MOST_PICKS, oldestFirst, picksWith, readPicks, writePicks } from './run-picks'

const IDS = ['1', '2', '3'].map((digit) => `01a20233-9c2f-77eb-85ea-${digit.repeat(12)}`)

test('what is picked comes back from an address as it was put there', () => {
  for (const picked of [[], IDS.slice(0, 1), IDS]) {
    expect(readPicks(writePicks(picked))).toEqual(picked)
  }
  expect(writePicks([])).toBeNull()
})

test('an address picks each run once, and no nonsense', () => {
  expect(readPicks(`${IDS[0]}.${IDS[0]}.${IDS[1]}`)).toEqual(IDS.slice(0, 2))
  expect(readPicks('one..<script>')).toEqual([])
  expect(readPicks(null)).toEqual([])
})

test('a pick beyond the most replaces the last one', () => {
  const most = Array.from({ length: MOST_PICKS }, (_, index) => `run ${index}`)

  expect(picksWith(['one'], 'two')).toEqual(['one', 'two'])
  expect(picksWith(most, 'another')).toEqual([...most.slice(0, -1), 'another'])
})

test('what is picked and not listed any more is older than what is', () => {
  expect(oldestFirst(['new', 'old'], ['new', 'old'])).toEqual(['old', 'new'])
  expect(oldestFirst(['new', 'gone'], ['new'])).toEqual(['gone', 'new'])
  expect(oldestFirst(['gone', 'new'], ['new'])).toEqual(['gone', 'new'])
})
