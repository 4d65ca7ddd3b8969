/** The signed-in reader, and the way to the sign-in page. */
import { useQuery, useQueryClient, type QueryClient } from '@tanstack/vue-query'
import { computed } from 'vue'
import type { Router } from 'vue-router'
import { readCaller, signIn, signOut, tellNotIdentified } from '../api/client'
import type { Outcome } from '../api/outcome'
import type { Caller } from '../api/shapes'

const CALLER = ['caller']
/** The server answers 401 when access ends, so the scopes are rarely asked for again. */
const FRESH = 60_000

/** Returns who the reader is to the server; the caller is null until the server has answered. */
export function useCaller() {
  const client = useQueryClient()
  const { data } = useQuery<Caller | null>({
    queryKey: CALLER,
    queryFn: async () => {
      const answer = await readCaller()
      if (answer.ok) return answer.value
      if (answer.failure.kind === 'notIdentified') return null
      throw answer.failure
    },
    staleTime: FRESH,
    networkMode: 'always',
  })
  const caller = computed(() => data.value ?? null)
  const isAdmin = computed(() => caller.value?.scopes.includes('admin') ?? false)

  /** Forgets what the server has answered so far, which may belong to another project. */
  function forget() {
    client.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== CALLER[0] })
  }

  async function enter(key: string): Promise<Outcome<Caller>> {
    const answer = await signIn(key)
    if (answer.ok) {
      client.setQueryData(CALLER, answer.value)
      forget()
    }
    return answer
  }

  /** Returns whether the reader is signed out. */
  async function leave(): Promise<boolean> {
    const isOut = await signOut()
    if (isOut) {
      client.setQueryData(CALLER, null)
      forget()
    }
    return isOut
  }

  return {
    caller,
    isAdmin,
    /** Whether keys can be created here: a server without keys creates the first one by command. */
    managesKeys: computed(() => isAdmin.value && caller.value?.keyId != null),
    enter,
    leave,
  }
}

/** Goes to the sign-in page, and from there back, if the server answers 401. */
export function leadToSignIn(router: Router, client: QueryClient) {
  tellNotIdentified(async () => {
    client.setQueryData(CALLER, null)
    // The code of a page may still be loading; until then the router has no location.
    await router.isReady()
    const here = router.currentRoute.value
    if (here.name !== 'signIn')
      void router.replace({ name: 'signIn', query: { to: here.fullPath } })
  })
}

/** The page to return to: always one of the viewer's own. */
export function pathAfterSignIn(to: unknown): string {
  return typeof to === 'string' && /^\/(?![/\\])/.test(to) ? to : '/'
}
