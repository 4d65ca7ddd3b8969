/** The keys of the open rows, as reka-ui's tree wants them. */

/**
 * An array that knows what it includes: the tree asks for every row, which in a run of ten thousand
 * records, all open, would be some thirty million comparisons.
 */
export class KeyList extends Array<string> {
  // What `map` and `filter` make of it is an ordinary array.
  static override get [Symbol.species]() {
    return Array
  }

  readonly #keys: ReadonlySet<string>

  constructor(keys: ReadonlySet<string>) {
    super()
    this.#keys = keys
    for (const key of keys) this.push(key)
  }

  override includes(key: string): boolean {
    return this.#keys.has(key)
  }
}
