// @vitest-environment happy-dom
import { expect, test } from 'vitest'
import type { ToolCallNode } from '../../api/shapes'
import { forestOf, plan, toolCall } from '../forest/example-tree'
import { mountInRun } from '../forest/mounting'

import TreeRow from './tree-row.vue'

function show(fields: Partial<ToolCallNode>, props = {}) {
  const tree = plan('root', { unplaced: [toolCall('call', fields)] })
  const row = forestOf(tree).byKey.get('call')
  return mountInRun(
    TreeRow,
    {
      row,
      level: 2,
      expanded: false,
      deeper: false,
      failures: 0,
      hits: 0,
      failed: null,
      share: 0,
      ...props,
    },
    tree,
  )
}

test('unusual properties of a record are marked and explained', async () => {
  for (const [fields, mark, words] of [
    [{ inferred: true, inferredFrom: 'its time' }, 'inferred', 'inferred from its time'],
    [{ inferred: true }, 'inferred', 'inferred from other records'],
    [{ status: 'abandoned' }, 'abandoned', 'stopped sending heartbeats'],
    [{ status: 'unknown' }, 'unknown', 'has not arrived yet'],
    [{ attempt: 3 }, '×3', 'Attempt'],
    [{ stillRunning: true }, 'still running', 'cannot be stopped'],
  ] as const) {
    const shown = (await show(fields)).get('.reason')
    expect(shown.text()).toBe(mark)
    expect(shown.attributes('title')).toContain(words)
  }
  expect((await show({})).find('.reason').exists()).toBe(false)
})

test('a closed row says how many failures and hits are below it', async () => {
  const text = (await show({}, { failures: 1, hits: 1200 })).text()

  expect(text).toContain('1 failure below')
  expect(text).toContain('1200 hits below')
})
