// @vitest-environment happy-dom
import { beforeEach, expect, test } from 'vitest'
import { readViews, useSavedViews } from './saved-views'

beforeEach(() => localStorage.clear())

test('views are kept until they are removed, one per name', () => {
  const { save, remove } = useSavedViews()
  save({ name: 'Failed', query: { status: 'failed' } })
  save({ name: 'Failed', query: { status: 'failed', last: '24h' } })
  expect(useSavedViews().views.value).toEqual([
    { name: 'Failed', query: { status: 'failed', last: '24h' } },
  ])

  remove('Failed')
  expect(useSavedViews().views.value).toEqual([])
})

test('stored text that contains no views is ignored', () => {
  expect(readViews('nonsense')).toEqual([])
  expect(readViews('[{"name":1},{"name":"a","query":{"q":2}}]')).toEqual([])
})
