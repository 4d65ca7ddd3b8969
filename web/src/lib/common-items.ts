/** The common items of two lists, in order. */

/** So many items, from these places on, are the same in both. */
export interface CommonRun {
  left: number
  right: number
  length: number
}

/**
 * The longest stretches that two lists share, found by Myers' greedy algorithm ("An O(ND) Difference
 * Algorithm", 1986); the last one, which may be empty, ends where both lists do.
 *
 * @param most With more items removed and added than this, only start and end are found.
 */
export function commonItems(
  left: readonly string[],
  right: readonly string[],
  most: number,
): CommonRun[] {
  const shorter = Math.min(left.length, right.length)
  let start = 0
  while (start < shorter && left[start] === right[start]) start += 1
  let end = 0
  while (end < shorter - start && left[left.length - 1 - end] === right[right.length - 1 - end]) {
    end += 1
  }
  const middle = commonMiddle(
    left.slice(start, left.length - end),
    right.slice(start, right.length - end),
    most,
  )
  const last = { left: left.length - end, right: right.length - end, length: end }
  return [
    ...(start > 0 ? [{ left: 0, right: 0, length: start }] : []),
    ...middle.map((run) => ({ ...run, left: run.left + start, right: run.right + start })),
    last,
  ]
}

function commonMiddle(
  left: readonly string[],
  right: readonly string[],
  most: number,
): CommonRun[] {
  const offset = Math.min(most, left.length + right.length) + 1
  /** How far to the right in the left list each diagonal reaches. */
  const reached = new Int32Array(2 * offset + 1)
  const steps: Int32Array[] = []
  for (let edits = 0; edits < offset; edits += 1) {
    steps.push(reached.slice(offset - edits - 1, offset + edits + 2))
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      const isAdded = goesDown(reached, offset + diagonal, diagonal, edits)
      let x = isAdded ? reached[offset + diagonal + 1]! : reached[offset + diagonal - 1]! + 1
      while (x < left.length && x - diagonal < right.length && left[x] === right[x - diagonal]) {
        x += 1
      }
      reached[offset + diagonal] = x
      if (x >= left.length && x - diagonal >= right.length) return wayBack(steps, left, right)
    }
  }
  return []
}

/** Whether a diagonal is come to by an added item rather than by a removed one. */
function goesDown(reached: Int32Array, at: number, diagonal: number, edits: number): boolean {
  return diagonal === -edits || (diagonal !== edits && reached[at - 1]! < reached[at + 1]!)
}

function wayBack(
  steps: readonly Int32Array[],
  left: readonly string[],
  right: readonly string[],
): CommonRun[] {
  const runs: CommonRun[] = []
  let [x, y] = [left.length, right.length]
  for (let edits = steps.length - 1; edits >= 0; edits -= 1) {
    const before = steps[edits]!
    const diagonal = x - y
    const at = diagonal + edits + 1
    const isAdded = goesDown(before, at, diagonal, edits)
    const startX = edits === 0 ? 0 : isAdded ? before[at + 1]! : before[at - 1]! + 1
    if (x > startX) runs.push({ left: startX, right: startX - diagonal, length: x - startX })
    const from = isAdded ? diagonal + 1 : diagonal - 1
    x = isAdded ? startX : startX - 1
    y = x - from
  }
  return runs.reverse()
}
