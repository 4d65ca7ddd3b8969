import { expect, test } from 'vitest'
import { oldestFirst, picksWith, readPicks, writePicks } from './run-picks'

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
