/** State of a page that is in the query of its address, as refs. */
import { useRouteQuery } from '@vueuse/router'
import {
  computed,
  nextTick,
  shallowRef,
  toValue,
  type MaybeRefOrGetter,
  type WritableComputedRef,
} from 'vue'
import {
  useRouter,
  type LocationQueryRaw,
  type RouteLocationNormalizedLoaded,
  type Router,
} from 'vue-router'
import type { Query } from '../lib/url-query'

/** Browsers refuse address changes that come too fast, as they would while an arrow key is held. */
const SETTLE = 150

/** Whether a change adds a history entry, `push`, or not. */
type Mode = MaybeRefOrGetter<'push' | 'replace'>

/** Returns a parameter of the address, which can be written; null if it is absent or empty. */
export function useAddress(name: string, mode?: Mode): WritableComputedRef<string | null>
/** Returns a value that a parameter of the address states. */
export function useAddress<Value>(
  name: string,
  mode: Mode | undefined,
  read: (text: string | null) => Value,
  write: (value: Value) => string | null,
): WritableComputedRef<Value>
export function useAddress<Value>(
  name: string,
  mode: Mode = 'replace',
  read = (text: string | null) => text as Value,
  write = (value: Value) => value as string | null,
) {
  const text = useParameters([name], mode)[name]!
  return computed({ get: () => read(text.value), set: (value) => (text.value = write(value)) })
}

/** Returns a value that several parameters of the address state together. */
export function useAddressOfMany<Value>(
  names: readonly string[],
  mode: Mode,
  read: (read: (name: string) => string | null) => Value,
  write: (value: Value) => Query,
): WritableComputedRef<Value> {
  const texts = useParameters(names, mode)
  return computed({
    get: () => read((name) => texts[name]!.value),
    set: (value) => {
      const query = write(value)
      for (const name of names) texts[name]!.value = query[name] ?? null
    },
  })
}

function useParameters(names: readonly string[], mode: Mode) {
  const { route, change } = pendingQueryOf(useRouter())
  // `useRouteQuery` collects the changes of a tick by the router, whatever their modes.
  const router = {
    push: ({ query }: { query: LocationQueryRaw }) => change(query, true),
    replace: ({ query }: { query: LocationQueryRaw }) => change(query, false),
  } as unknown as Router
  const texts = names.map((name) => {
    const value = useRouteQuery<string | string[] | null>(name, null, {
      mode: computed(() => toValue(mode)),
      route,
      router,
    })
    const text = computed({
      get: () => (Array.isArray(value.value) ? value.value[0] : value.value) || null,
      set: (wanted) => (value.value = wanted),
    })
    return [name, text] as const
  })
  return Object.fromEntries(texts)
}

interface PendingQuery {
  /** The route with the query that the address will have. */
  route: RouteLocationNormalizedLoaded
  change: (query: LocationQueryRaw, push: boolean) => void
  flush: () => Promise<void>
}

const pendingQueries = new Map<Router, PendingQuery>()

/** Writes the changes that wait, so that the address can be read. */
export async function settleAddress(): Promise<void> {
  await nextTick()
  await Promise.all([...pendingQueries.values()].map(({ flush }) => flush()))
}

/** The query as it will be: changes wait until no more follow, and a link wins over these. */
function pendingQueryOf(router: Router): PendingQuery {
  const known = pendingQueries.get(router)
  if (known) return known
  const waiting = shallowRef<LocationQueryRaw | null>(null)
  let pushes = false
  let timer: ReturnType<typeof setTimeout> | undefined
  let isOwn = false
  /** Whether another page is being opened, whose code may still be loading. */
  let isLeaving = false

  function change(query: LocationQueryRaw, push: boolean) {
    waiting.value = query
    pushes ||= push
    clearTimeout(timer)
    timer = setTimeout(flush, SETTLE)
  }

  async function flush() {
    clearTimeout(timer)
    const query = waiting.value
    if (query === null) return
    // A change of the address would cancel the navigation.
    if (isLeaving) {
      timer = setTimeout(flush, SETTLE)
      return
    }
    const push = pushes
    pushes = false
    isOwn = true
    try {
      await (push ? router.push({ query }) : router.replace({ query }))
    } finally {
      isOwn = false
    }
    if (waiting.value === query) waiting.value = null
  }

  router.beforeEach(() => void (isLeaving = !isOwn))
  router.afterEach((_to, _from, failure) => {
    isLeaving = false
    if (isOwn || failure) return
    clearTimeout(timer)
    waiting.value = null
    pushes = false
  })
  const route = {
    get query() {
      return waiting.value ?? router.currentRoute.value.query
    },
  } as RouteLocationNormalizedLoaded
  const pending = { route, change, flush }
  pendingQueries.set(router, pending)
  return pending
}
