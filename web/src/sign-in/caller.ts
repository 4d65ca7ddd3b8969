/** The signed-in reader, and the way to the sign-in page. */
import { shallowRef } from 'vue'
import type { Router } from 'vue-router'
import { readCaller, signIn, signOut, tellNotIdentified } from '../api/client'
import type { Outcome } from '../api/outcome'
import type { Caller } from '../api/shapes'

const caller = shallowRef<Caller | null>(null)

/** The caller is null until the server has answered. */
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

/** Goes to the sign-in page, and from there back, if the server answers that nobody is signed in. */
export function leadToSignIn(router: Router) {
  tellNotIdentified(async () => {
    caller.value = null
    // The code of a page may still be loading; until then the router has no location.
    await router.isReady()
    const here = router.currentRoute.value
    if (here.name !== 'signIn')
      void router.replace({ name: 'signIn', query: { to: here.fullPath } })
  })
}

/** The page to return to: always one of the viewer's own. */
export function placeAfterSignIn(to: unknown): string {
  return typeof to === 'string' && /^\/(?![/\\])/.test(to) ? to : '/'
}
