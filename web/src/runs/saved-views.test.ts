// @vitest-environment happy-dom
import { beforeEach, expect, test } from 'vitest'
import { nextTick } from 'vue'
import { readViews, useSavedViews } from './saved-views'

beforeEach(() => localStorage.clear())

test('views are kept until they are removed, one per name', async () => {
  const { save, remove } = useSavedViews()
  save({ name: 'Failed', query: { status: 'failed' } })
  await nextTick()
  save({ name: 'Failed', query: { status: 'failed', last: '24h' } })
  await nextTick()
  expect(useSavedViews().views.value).toEqual([
    { name: 'Failed', query: { status: 'failed', last: '24h' } },
  ])

  remove('Failed')
  await nextTick()
  expect(useSavedViews().views.value).toEqual([])
})

test('stored text that contains no views is ignored', () => {
  expect(readViews('nonsense')).toEqual([])
  expect(readViews('[{"name":1},{"name":"a","query":{"q":2}}]')).toEqual([])
})
