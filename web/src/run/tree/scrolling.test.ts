import { expect, test } from 'vitest'
import { forestOf, nested, toolCall } from '../forest/example-tree'
import { visibleRows } from '../forest/rows'
import { anchorRow, scrollTopFor } from './scrolling'

const all = (tree = nested()) => {
  const forest = forestOf(tree)
  return visibleRows(forest.tops, new Set(forest.byKey.keys()))
}

const viewFrom = (scrollTop: number) => ({ scrollTop, height: 84, rowHeight: 28 })

function treeWithNewCall() {
  const tree = nested()
  tree.agentExecutions[0]!.thinkActs[0]!.toolCalls.unshift(toolCall('new'))
  return tree
}

test('the first row in view stays in place when rows appear above it', () => {
  const anchor = anchorRow(all(), null, viewFrom(4 * 28 + 10))

  expect(anchor).toMatchObject({ key: 'opener', offset: -10 })
  expect(scrollTopFor(all(treeWithNewCall()), anchor, 28)).toBe(5 * 28 + 10)
})

test('a selected row in view stays in place before any other', () => {
  const anchor = anchorRow(all(), 'opener', viewFrom(2 * 28))

  expect(anchor).toMatchObject({ key: 'opener', offset: 56 })
  expect(scrollTopFor(all(treeWithNewCall()), anchor, 28)).toBe(3 * 28)
})

test('a selected row out of view does not hold the view', () => {
  expect(anchorRow(all(), 'root', viewFrom(4 * 28))?.key).toBe('opener')
})

test('where the row is closed away its parent takes its place', () => {
  const anchor = anchorRow(all(), null, viewFrom(7 * 28))
  const forest = forestOf(nested())
  const closed = visibleRows(forest.tops, new Set(['root', 'step', 'round']))

  expect(anchor?.key).toBe('inner')
  expect(scrollTopFor(closed, anchor, 28)).toBe(4 * 28)
})

test('the very top stays the top', () => {
  expect(anchorRow(all(), 'root', viewFrom(0))).toBeNull()
  expect(scrollTopFor(all(), null, 28)).toBeNull()
})
