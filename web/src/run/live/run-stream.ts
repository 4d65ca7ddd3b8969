/** The stream of what changes in a run, open while the page is looked at. */
import { useEventListener } from '@vueuse/core'
import { onScopeDispose } from 'vue'
import { completeChanges } from '../../api/complete'
import type { RunChanges } from '../../api/shapes'

/** After so many breaks in a row, although the server answers otherwise, the stream pauses. */
const MOST_BREAKS = 3
const LEFT_ALONE = 60_000
/** A connection that lasted so long worked, however it ended. */
const LASTING = 10_000

export interface StreamHearer {
  /** Whether there is something to hear of. */
  wanted: () => boolean
  /** The revision that is known. */
  revision: () => number
  changes: (changes: RunChanges, revision: number) => void
  /** Too many changes: the tree must be read again. */
  reset: () => void
  deleted: () => void
  /** The connection broke, or is there again. */
  turned: () => void
}

export function useRunStream(rootPlanId: string, hearer: StreamHearer) {
  let source: EventSource | null = null
  let isBroken = false
  /** When it was opened last; Infinity while it is not open. */
  let openedAt = Infinity
  let breaks = 0
  let leftAloneUntil = 0

  /** Opens it, unless it is open, the page is hidden, nothing is wanted, or streams do not work here. */
  function connect() {
    if (source || document.hidden || !hearer.wanted() || Date.now() < leftAloneUntil) return
    const path = `/api/runs/${encodeURIComponent(rootPlanId)}/events`
    // The browser resumes a broken connection, and sends the id of the last message.
    source = new EventSource(`${path}?after=${hearer.revision()}`)
    source.addEventListener('open', onOpen)
    source.addEventListener('error', onError)
    source.addEventListener('message', onMessage)
    source.addEventListener('reset', hearer.reset)
    source.addEventListener('stale', hearer.turned)
    source.addEventListener('deleted', onDeleted)
  }

  function close() {
    source?.close()
    source = null
    openedAt = Infinity
  }

  function onOpen() {
    openedAt = Date.now()
    if (isBroken) hearer.turned()
    isBroken = false
  }

  function onError() {
    if (Date.now() - openedAt >= LASTING) breaks = 0
    breaks += 1
    openedAt = Infinity
    // The browser gave up: the answer was no stream.
    if (source?.readyState === EventSource.CLOSED) close()
    if (isBroken) return
    isBroken = true
    hearer.turned()
  }

  function onMessage(event: MessageEvent<string>) {
    breaks = 0
    hearer.changes(completeChanges(JSON.parse(event.data) as RunChanges), Number(event.lastEventId))
  }

  function onDeleted() {
    close()
    hearer.deleted()
  }

  /** Takes note of whether the server answers other questions. */
  function serverAnswers(does: boolean) {
    if (!does) breaks = 0
    else if (breaks >= MOST_BREAKS) leaveAlone()
    else connect()
  }

  /** Takes note that the server has what the stream does not bring. */
  function failed() {
    breaks += 1
    close()
    if (breaks >= MOST_BREAKS) leaveAlone()
  }

  function leaveAlone() {
    close()
    breaks = 0
    isBroken = false
    leftAloneUntil = Date.now() + LEFT_ALONE
  }

  useEventListener(document, 'visibilitychange', () => {
    if (document.hidden) close()
    else connect()
  })
  onScopeDispose(close)
  /** Whether new changes can be expected from it. */
  function isUp(): boolean {
    return source !== null && !isBroken
  }

  return { isUp, close, serverAnswers, failed }
}
