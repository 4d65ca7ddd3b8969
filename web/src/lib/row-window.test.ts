import { expect, test } from 'vitest'
import { rowWindow, slotsOf } from './row-window'

const VIEW = { scrollTop: 0, height: 100, rowHeight: 10 }

test('visible rows and a few beyond are rendered', () => {
  expect(rowWindow(1_000, { ...VIEW, scrollTop: 500 }, -1)).toEqual(
    Array.from({ length: 22 }, (_, index) => 44 + index),
  )
  expect(rowWindow(3, VIEW, -1)).toEqual([0, 1, 2])
  expect(rowWindow(0, VIEW, 0)).toEqual([])
})

test('the row with the keyboard stays in the page, at its index', () => {
  const below = rowWindow(1_000, VIEW, 900)
  const above = rowWindow(1_000, { ...VIEW, scrollTop: 500 }, 2)

  expect([below.at(-1), above[0]]).toEqual([900, 2])
  expect(rowWindow(1_000, VIEW, 3)).toEqual(rowWindow(1_000, VIEW, -1))
})

const row = (key: string, kind = 'toolCall') => ({ key, kind, children: [] })

test('a row that stays keeps its slot, and one that comes takes that of a row that left', () => {
  const before = slotsOf([row('a'), row('b'), row('c')], new Map())
  const after = slotsOf([row('b'), row('c'), row('d')], before)

  expect(after.get('b')).toBe(before.get('b'))
  expect(after.get('c')).toBe(before.get('c'))
  expect(after.get('d')).toBe(before.get('a'))
})

test('a row takes the slot of a row of its kind only', () => {
  const before = slotsOf([row('a', 'plan'), row('b')], new Map())
  const after = slotsOf([row('b'), row('c')], before)

  expect([...before.values()]).not.toContain(after.get('c'))
})

test('no two rows have one slot, whatever comes and leaves', () => {
  let slots: ReadonlyMap<string, string> = new Map()
  for (let first = 0; first < 50; first += 7) {
    const kinds = ['plan', 'thinkAct', 'toolCall']
    const rows = Array.from({ length: 20 }, (_, n) => row(`${first + n}`, kinds[(first + n) % 3]))
    slots = slotsOf(rows, slots)
    expect([...slots.keys()]).toEqual(rows.map(({ key }) => key))
    expect(new Set(slots.values()).size).toBe(20)
  }
})
