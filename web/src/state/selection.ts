/** Which record is selected: in the URL, as `?select={id}`. */
import { onScopeDispose, shallowRef, watch } from 'vue'
import { useRoute, useRouter } from 'vue-router'

/** Browsers refuse address changes that come too fast, as they would while an arrow key is held. */
const SETTLE = 150

export function useSelection() {
  const route = useRoute()
  const router = useRouter()
  const selected = shallowRef(fromUrl())
  let timer: ReturnType<typeof setTimeout> | undefined

  function fromUrl(): string | null {
    const value = route.query['select']
    return (Array.isArray(value) ? value[0] : value) || null
  }

  /** Selects by hand: moving about in the tree leaves no trail of history entries. */
  function select(key: string) {
    if (key === selected.value) return
    selected.value = key
    clearTimeout(timer)
    timer = setTimeout(() => {
      void router.replace({ query: { ...route.query, select: key } })
    }, SETTLE)
  }

  watch(
    () => route.query['select'],
    () => {
      clearTimeout(timer)
      selected.value = fromUrl()
    },
  )
  onScopeDispose(() => clearTimeout(timer))
  return { selected, select }
}
