/** Lists that a reader saved under a name: the queries of their addresses, kept on the device. */
import { computed } from 'vue'
import { usePreference } from '../page/preferences'

export interface SavedView {
  name: string
  query: Record<string, string>
}

export function readViews(text: string | null): SavedView[] {
  try {
    const views: unknown = JSON.parse(text ?? '[]')
    return Array.isArray(views) ? views.filter(isView) : []
  } catch {
    return []
  }
}

function isView(value: unknown): value is SavedView {
  if (typeof value !== 'object' || value === null) return false
  const { name, query } = value as Partial<SavedView>
  const isQuery = typeof query === 'object' && query !== null
  return (
    typeof name === 'string' &&
    isQuery &&
    Object.values(query).every((each) => typeof each === 'string')
  )
}

export function useSavedViews() {
  const stored = usePreference('views')
  const views = computed(() => readViews(stored.value))

  function keep(wanted: SavedView[]) {
    stored.value = wanted.length > 0 ? JSON.stringify(wanted) : null
  }

  return {
    views,
    /** Saves a view; one of the same name is replaced. */
    save: (view: SavedView) =>
      keep([...views.value.filter(({ name }) => name !== view.name), view]),
    remove: (name: string) => keep(views.value.filter((view) => view.name !== name)),
  }
}
