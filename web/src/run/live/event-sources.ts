/** The browser's EventSource as a test plays it: for each connection, what the server sends. */
import type { RunChanges } from '../../api/shapes'

export class PlayedEventSource extends EventTarget {
  static readonly CLOSED = 2
  static made: PlayedEventSource[] = []
  readyState = 0

  constructor(readonly url: string) {
    super()
    PlayedEventSource.made.push(this)
  }

  /** The connections that are not closed. */
  static get open(): PlayedEventSource[] {
    return PlayedEventSource.made.filter((each) => each.readyState !== PlayedEventSource.CLOSED)
  }

  close() {
    this.readyState = PlayedEventSource.CLOSED
  }

  accept() {
    this.readyState = 1
    this.dispatchEvent(new Event('open'))
  }

  send(revision: number, changes: Partial<RunChanges>) {
    const data = JSON.stringify({ changed: [], removed: [], ...changes })
    this.dispatchEvent(new MessageEvent('message', { data, lastEventId: String(revision) }))
  }

  /** The connection breaks, and the browser tries again. */
  breakOff() {
    this.readyState = 0
    this.dispatchEvent(new Event('error'))
  }

  /** The answer was no stream, and the browser gives up. */
  refuse() {
    this.readyState = PlayedEventSource.CLOSED
    this.dispatchEvent(new Event('error'))
  }
}
