/** Leaving a project: signing out, or signing in to another one. */
import { useRouter } from 'vue-router'
import { useCaller } from './caller'

export function useSignOut() {
  const router = useRouter()
  const { leave } = useCaller()
  return {
    signOut: async () => {
      if (await leave()) await router.push({ name: 'signIn' })
    },
    /** A key belongs to one project, so another project needs its key. */
    changeProject: () => void router.push({ name: 'signIn', query: { change: 'project' } }),
  }
}
