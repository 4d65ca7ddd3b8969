// @vitest-environment happy-dom
import { expect, test } from 'vitest'
import { nested } from '../forest/example-tree'
import { buildForest, isRecord, visibleRows, type Row } from '../forest/rows'
import { treeKeys } from './tree-keys'

/** A tree with everything open, and what was done with it. */
function walked() {
  const forest = buildForest(nested())
  const open = new Set(forest.byKey.keys())
  const selected: string[] = []
  let place = 0
  const rows = () => visibleRows(forest.tops, open)
  const onKey = treeKeys({
    rows,
    capacity: () => 3,
    nameOf: (row: Row) => (isRecord(row) ? row.kind : ''),
    isOpen: (row) => open.has(row.key),
    toggle: (row) => void (open.delete(row.key) || open.add(row.key)),
    select: (row) => void selected.push(row.key),
    focus: (to) => (place = to),
  })
  const press = (key: string, options = {}) => {
    const event = new KeyboardEvent('keydown', { key, cancelable: true, ...options })
    onKey(event, rows()[place]!)
    return event.defaultPrevented
  }
  return { rows, selected, press, at: () => place, key: () => rows()[place]!.key }
}

test('keys walk from row to row and stay within the tree', () => {
  const tree = walked()
  const last = tree.rows().length - 1
  const places = ['ArrowUp', 'ArrowDown', 'PageDown', 'End', 'ArrowDown', 'PageUp', 'Home'].map(
    (key) => [tree.press(key), tree.at()],
  )

  expect(places.every(([prevented]) => prevented)).toBe(true)
  expect(places.map(([, place]) => place)).toEqual([0, 1, 4, last, last, last - 3, 0])
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
