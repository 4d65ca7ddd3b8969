/** The query of an address. */

/** Parameters by their names; null for one that is left out. */
export type Query = Record<string, string | null>

/** Returns the parameters that are not left out. */
export function givenIn(query: Query): Record<string, string> {
  const given = Object.entries(query).filter(([, value]) => value !== null)
  return Object.fromEntries(given) as Record<string, string>
}
