/** Calls composables as a component of an app would, with a cache of its own, for tests. */
import { QueryClient, VueQueryPlugin } from '@tanstack/vue-query'
import { createApp, type EffectScope } from 'vue'

export function withQueries<Result>(scope: EffectScope, call: () => Result): Result {
  const app = createApp({}).use(VueQueryPlugin, { queryClient: new QueryClient() })
  return app.runWithContext(() => scope.run(call)!)
}
