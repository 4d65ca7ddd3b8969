/** The title of the browser's tab. */
import { watchEffect } from 'vue'

export function usePageTitle(title: () => string) {
  watchEffect(() => {
    const own = title()
    document.title = own ? `${own} · Tracer` : 'Tracer'
  })
}
