/** Where a reader left the run list, for going back to it. */
import type { RouteLocationNormalized } from 'vue-router'

export interface ListPosition {
  /** How far down it was scrolled, in pixels. */
  top: number
  /** How many runs were loaded. */
  count: number
  /** The next page: mostly the path of a run in the list. */
  to: string
}

/** By the list's address with its filters. */
const positions = new Map<string, ListPosition>()

export function rememberListPosition(route: RouteLocationNormalized, position: ListPosition) {
  positions.set(route.fullPath, position)
}

/** The position to return to; null for a reader who followed a link, and begins at the top. */
export function listPosition(route: RouteLocationNormalized): ListPosition | null {
  const isBack = Boolean((history.state as { forward?: unknown } | null)?.forward)
  return (isBack && positions.get(route.fullPath)) || null
}
