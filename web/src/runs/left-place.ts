/** Where a reader left the run list, for going back to it. */
import type { RouteLocationNormalized } from 'vue-router'

export interface LeftPlace {
  /** How far down it was scrolled, in pixels. */
  top: number
  /** How many runs were loaded. */
  count: number
  /** The next page: mostly the path of a run in the list. */
  to: string
}

/** By the list's address with its filters. */
const places = new Map<string, LeftPlace>()

export function leavePlace(route: RouteLocationNormalized, place: LeftPlace) {
  places.set(route.fullPath, place)
}

/** The place to return to; null for a reader who followed a link, and begins at the top. */
export function leftPlace(route: RouteLocationNormalized): LeftPlace | null {
  const isBack = Boolean((history.state as { forward?: unknown } | null)?.forward)
  return (isBack && places.get(route.fullPath)) || null
}
