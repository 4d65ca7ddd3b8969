// @vitest-environment happy-dom
import { mount } from '@vue/test-utils'
import { expect, test } from 'vitest'
import { createMemoryHistory, createRouter } from 'vue-router'
import type { ListedToolStats } from '../api/shapes'
import { createLanguages, loadLanguage } from '../i18n/languages'
import { COLUMNS, readSorting, writeSorting } from './tool-columns'
import ToolTable from './tool-table.vue'

function tool(name: string, calls: number, p95Ms: number | null, latestAt: string) {
  return { name, calls, p95Ms, latestAt, buckets: [] as object[] } as ListedToolStats
}

const TOOLS = [
  tool('ask', 3, 70, '2026-01-01T00:30:00Z'),
  tool('tool 10', 3, null, '2026-01-01T00:00:00Z'),
  tool('tool 2', 9, 5, '2026-01-01T02:00:00+01:00'),
]

async function table(sort: string | null) {
  const routes = ['/', '/runs'].map((path) => ({
    path,
    name: path === '/' ? 'tools' : 'runs',
    component: {},
  }))
  const router = createRouter({ history: createMemoryHistory(), routes })
  await router.push('/')
  const props = { tools: TOOLS, bucketSeconds: 60, from: null, to: 0, chosen: null }
  return mount(ToolTable, {
    props: { ...props, sorting: readSorting(sort) },
    global: { plugins: [router, createLanguages('en', await loadLanguage('en'))] },
  })
}

async function names(sort: string | null): Promise<string[]> {
  return (await table(sort)).findAll('tbody th').map((cell) => cell.text())
}

test('tools are sorted by number, moment and name', async () => {
  expect(await names(null)).toEqual(['tool 2', 'ask', 'tool 10'])
  expect(await names('-latestAt')).toEqual(['tool 2', 'ask', 'tool 10'])
  expect(await names('name')).toEqual(['ask', 'tool 2', 'tool 10'])
})

test('a tool without a value comes last, either way', async () => {
  expect(await names('-p95Ms')).toEqual(['ask', 'tool 2', 'tool 10'])
  expect(await names('p95Ms')).toEqual(['tool 2', 'ask', 'tool 10'])
})

test('a failure below a tool is told beside a rate that does not count it', async () => {
  const failing = { ...tool('ask', 2, 70, '2026-01-01T00:30:00Z'), failedBelow: 2 }
  const shown = await table(null)
  await shown.setProps({ tools: [failing] })

  expect(shown.get('tbody .below').text()).toBe('+2 below')
})

test('an order is read from an address as it was written', () => {
  for (const id of COLUMNS) {
    for (const desc of [true, false]) {
      expect(readSorting(writeSorting([{ id, desc }]))).toEqual([{ id, desc }])
    }
  }
  for (const nonsense of [null, '', '-', 'toString', '--calls']) {
    expect(readSorting(nonsense)).toEqual([{ id: 'calls', desc: true }])
  }
})

test('a first click sorts the greatest first, and a second one reverses', async () => {
  const shown = await table(null)
  const click = (column: string) =>
    shown
      .findAll('thead button')
      .find((button) => button.text() === column)!
      .trigger('click')

  await click('p95')
  expect(shown.emitted('sort')!.at(-1)).toEqual([[{ id: 'p95Ms', desc: true }]])
  await shown.setProps({ sorting: [{ id: 'p95Ms', desc: true }] })
  await click('▾p95')
  expect(shown.emitted('sort')!.at(-1)).toEqual([[{ id: 'p95Ms', desc: false }]])
  await click('Tool')
  expect(shown.emitted('sort')!.at(-1)).toEqual([[{ id: 'name', desc: false }]])
})
