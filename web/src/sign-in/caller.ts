/** Who the reader is to the server, and the way to the page where they say it. */
import { shallowRef } from 'vue'
import type { Router } from 'vue-router'
import { readCaller, signIn, signOut, tellNotIdentified } from '../api/client'
import type { Outcome } from '../api/outcome'
import type { Caller } from '../api/shapes'

const caller = shallowRef<Caller | null>(null)

/** The caller is null until the server has said it. */
export function useCaller() {
  return { caller, askWho, enter, leave }
}

async function askWho() {
  const answer = await readCaller()
  if (answer.ok) caller.value = answer.value
}

async function enter(key: string): Promise<Outcome<Caller>> {
  const answer = await signIn(key)
  if (answer.ok) caller.value = answer.value
  return answer
}

/** Returns whether the reader is signed out. */
async function leave(): Promise<boolean> {
  const isOut = await signOut()
  if (isOut) caller.value = null
  return isOut
}

/** Leads to the sign-in page, and from there back, whenever the server does not know who asks. */
export function leadToSignIn(router: Router) {
  tellNotIdentified(async () => {
    caller.value = null
    // A page's code may still be loading: before that, the router does not know where it is.
    await router.isReady()
    const here = router.currentRoute.value
    if (here.name !== 'signIn')
      void router.replace({ name: 'signIn', query: { to: here.fullPath } })
  })
}

/** The page to go back to: one of the viewer's own, whatever the address says. */
export function placeAfterSignIn(to: unknown): string {
  return typeof to === 'string' && /^\/(?![/\\])/.test(to) ? to : '/'
}
