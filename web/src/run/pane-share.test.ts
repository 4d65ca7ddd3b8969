// @vitest-environment happy-dom
import { beforeEach, expect, test } from 'vitest'
import { nextTick } from 'vue'
import { allowedShare, usePaneShare } from './pane-share'

beforeEach(() => localStorage.clear())

test('a share leaves something of both panes', () => {
  expect([-5, 15, 33.333, 99, Infinity].map(allowedShare)).toEqual([15, 15, 33.3, 85, 85])
})

test('a chosen share is there when the page is opened again, until it is the usual one', async () => {
  const share = usePaneShare('details', 62)
  share.value = 40
  await nextTick()
  expect(usePaneShare('details', 62).value).toBe(40)
  expect(usePaneShare('waterfall', 54).value).toBe(54)

  share.value = 62
  await nextTick()
  expect(localStorage.length).toBe(0)
})

test('what is stored and no share is left aside', () => {
  for (const [stored, share] of [
    ['wide', 62],
    ['', 62],
    ['4e9', 85],
  ] as const) {
    localStorage.setItem('tracer.share.details', stored)
    expect(usePaneShare('details', 62).value).toBe(share)
  }
})
