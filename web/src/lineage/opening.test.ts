import { expect, test } from 'vitest'
import { nested, plan, step, toolCall } from './example-tree'
import { NOTHING_OPEN, openTo, openWhatFits, settle } from './opening'
import { buildForest, visibleRows } from './rows'

test('as many levels are open at first as fit the screen', () => {
  const forest = buildForest(nested())
  const keysAt = (capacity: number) =>
    visibleRows(forest.tops, openWhatFits(forest, NOTHING_OPEN, capacity).expanded).map(
      (row) => row.key,
    )

  expect(keysAt(5)).toEqual(['root', 'step', 'round', 'other', 'opener'])
  expect(keysAt(6)).toEqual(['root', 'step', 'round', 'other', 'opener', 'sub'])
  expect(keysAt(50)).toHaveLength(8)
})

test('a row with none beside it is open even where what it holds does not fit', () => {
  const calls = Array.from({ length: 500 }, (_, number) => toolCall(`call-${number}`))
  const forest = buildForest(
    plan('root', { agentExecutions: [step('step', { toolCalls: calls })] }),
  )
  const two = buildForest(
    plan('root', { agentExecutions: [step('step', { toolCalls: calls }), step('other')] }),
  )

  expect(openWhatFits(forest, NOTHING_OPEN, 20).expanded.has('step')).toBe(true)
  expect(openWhatFits(two, NOTHING_OPEN, 20).expanded.has('step')).toBe(false)
})

test('what the reader closed stays closed while the tree grows', () => {
  const before = openWhatFits(buildForest(nested()), NOTHING_OPEN, 50)
  const closed = settle(
    [...before.expanded].filter((key) => key !== 'round'),
    before,
  )

  const after = openWhatFits(buildForest(nested([toolCall('stray')])), closed, 50)

  expect(after.expanded.has('round')).toBe(false)
  expect(after.expanded.has('unplaced')).toBe(true)
})

test('a row that gets its first children opens while there is room', () => {
  const empty = buildForest(plan('root', { agentExecutions: [step('step')] }))
  const before = openWhatFits(empty, NOTHING_OPEN, 50)
  const grown = buildForest(nested())

  expect(openWhatFits(grown, before, 50).expanded.has('opener')).toBe(true)
})

test('nothing changes where nothing is new', () => {
  const forest = buildForest(nested())
  const opening = openWhatFits(forest, NOTHING_OPEN, 50)

  expect(openWhatFits(forest, opening, 50)).toBe(opening)
})

test('everything above a row opens so that it can be seen', () => {
  const forest = buildForest(nested())
  const opening = openTo(forest.byKey.get('inner')!, NOTHING_OPEN)

  expect(visibleRows(forest.tops, opening.expanded).at(-1)?.key).toBe('inner')
})
