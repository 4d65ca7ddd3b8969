// @vitest-environment happy-dom
import { expect, test } from 'vitest'
import { forestOf, nested } from '../forest/example-tree'
import { isRecord, visibleRows, type Row } from '../forest/rows'
import { rowTyped, treeKeys } from './tree-keys'

/** A tree with everything open, and a list of the calls that it received. */
function walked(nameOf = (row: Row) => (isRecord(row) ? `${row.kind}` : '')) {
  const forest = forestOf(nested())
  const open = new Set(forest.byKey.keys())
  const selected: string[] = []
  let index = 0
  const rows = () => visibleRows(forest.tops, open)
  const onKey = treeKeys({
    rows,
    capacity: () => 3,
    nameOf,
    isOpen: (row) => open.has(row.key),
    toggle: (row) => void (open.delete(row.key) || open.add(row.key)),
    select: (row) => void selected.push(row.key),
    focus: (to) => (index = to),
  })
  const press = (key: string, options = {}) => {
    const event = new KeyboardEvent('keydown', { key, cancelable: true, ...options })
    onKey(event, rows()[index]!)
    return event.defaultPrevented
  }
  return { rows, selected, press, at: () => index, key: () => rows()[index]!.key }
}

test('keys walk from row to row and stay within the tree', () => {
  const tree = walked()
  const last = tree.rows().length - 1
  const steps = ['ArrowUp', 'ArrowDown', 'PageDown', 'End', 'ArrowDown', 'PageUp', 'Home'].map(
    (key) => [tree.press(key), tree.at()],
  )

  expect(steps.every(([prevented]) => prevented)).toBe(true)
  expect(steps.map(([, index]) => index)).toEqual([0, 1, 4, last, last, last - 3, 0])
})

test('right opens or goes in, left closes or goes up', () => {
  const tree = walked()
  const count = tree.rows().length
  tree.press('ArrowLeft')
  expect([tree.rows().length, tree.at()]).toEqual([1, 0])
  tree.press('ArrowRight')
  expect([tree.rows().length, tree.at()]).toEqual([count, 0])
  tree.press('ArrowRight')
  expect(tree.key()).toBe('step')
  tree.press('ArrowLeft')
  tree.press('ArrowLeft')
  expect(tree.key()).toBe('root')
})

test('Enter and the space bar select, and what the browser is asked for is left to it', () => {
  const tree = walked()
  tree.press('Enter')
  tree.press(' ')
  expect(tree.selected).toEqual(['root', 'root'])
  expect(tree.press('End', { ctrlKey: true })).toBe(false)
  expect([tree.press('Escape'), tree.at()]).toEqual([false, 0])
})

test('a name that is typed is found', () => {
  const tree = walked()
  for (const letter of 'tool') tree.press(letter)

  expect(tree.key()).toBe('other')
})

test('a space belongs to a name that is being typed', () => {
  const tree = walked((row) => (isRecord(row) ? `the ${row.kind}` : ''))
  for (const letter of 'the tool') tree.press(letter)
  expect([tree.key(), tree.selected]).toEqual(['other', []])

  tree.press('ArrowUp')
  tree.press(' ')
  expect(tree.selected).toHaveLength(1)
})

const NAMES = ['plan', 'measure', 'plot', 'mean', 'plain']
const typed = (text: string, from: number) => rowTyped(text, from, NAMES.length, (at) => NAMES[at]!)

test('a letter goes to the next row whose name begins with it, and round', () => {
  expect([typed('p', 0), typed('p', 2), typed('p', 4), typed('pp', 0)]).toEqual([2, 4, 0, 2])
})

test('more of a name stays at the row that it fits', () => {
  expect([typed('pl', 0), typed('me', 1), typed('mea', 2), typed('plai', 1)]).toEqual([0, 1, 3, 4])
})

test('what no name begins with leads nowhere', () => {
  expect([typed('x', 0), rowTyped('p', -1, 0, () => '')]).toEqual([-1, -1])
  expect(typed('p', -1)).toBe(0)
})
