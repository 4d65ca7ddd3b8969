/** The state of a page in its address: read when the page is opened, written when it changes. */
import { onScopeDispose, watch } from 'vue'
import { useRoute, useRouter } from 'vue-router'
import type { Query } from '../lib/url-query'

/** Browsers refuse address changes that come too fast, as they would while an arrow key is held. */
const SETTLE = 150

/** The changes that wait, of every part of the page. */
const flushes = new Set<() => Promise<unknown>>()

/** Writes what waits, so that the address can be read. */
export async function settleAddress(): Promise<void> {
  await Promise.all([...flushes].map((flush) => flush()))
}

export interface Address {
  /** The value of a parameter; null if it is absent. */
  read: (name: string) => string | null
  /** Changes parameters shortly; adds a history entry only with `push`. */
  write: (changes: Query, push?: boolean) => void
  /** Hears of every change that is not a `write`: links, back and forward. */
  onArrival: (hear: () => void) => void
}

export function useAddress(): Address {
  const route = useRoute()
  const router = useRouter()
  const hearers: (() => void)[] = []
  let waiting: Query = {}
  let pushes = false
  let timer: ReturnType<typeof setTimeout> | undefined
  /** Whether another page is being opened, whose code may still be loading. */
  let isLeaving = false
  const stopHearing = [
    router.beforeEach(() => void (isLeaving = true)),
    router.afterEach(() => void (isLeaving = false)),
  ]
  /** The query that was written last, until it is the page's. */
  let written: string | null = null

  function read(name: string): string | null {
    const value = route.query[name]
    return (Array.isArray(value) ? value[0] : value) || null
  }

  function write(changes: Query, push = false) {
    Object.assign(waiting, changes)
    pushes ||= push
    clearTimeout(timer)
    timer = setTimeout(flush, SETTLE)
  }

  async function flush() {
    clearTimeout(timer)
    // A change of the address would cancel the navigation.
    if (isLeaving) {
      timer = setTimeout(flush, SETTLE)
      return
    }
    const query = { ...route.query, ...waiting }
    for (const [name, value] of Object.entries(query)) if (value === null) delete query[name]
    const push = pushes
    waiting = {}
    pushes = false
    const text = JSON.stringify(query)
    if (text === JSON.stringify(route.query)) return
    written = text
    await (push ? router.push({ query }) : router.replace({ query }))
  }
  flushes.add(flush)

  watch(
    () => route.query,
    (query) => {
      const own = JSON.stringify(query) === written
      written = null
      if (own) return
      clearTimeout(timer)
      waiting = {}
      pushes = false
      for (const hear of hearers) hear()
    },
  )
  onScopeDispose(() => {
    clearTimeout(timer)
    flushes.delete(flush)
    for (const stop of stopHearing) stop()
  })
  return { read, write, onArrival: (hear) => void hearers.push(hear) }
}
