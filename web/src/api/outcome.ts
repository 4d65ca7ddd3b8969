/** The result of a request to the API: the answer, or a kind of failure. */
import type { Problem } from './shapes'

export type Failure =
  /** No answer, or an answer of a gateway whose server is away. */
  | { kind: 'away' }
  /** The record does not exist, or the id is malformed. */
  | { kind: 'notFound'; detail: string }
  /** The reader is not signed in. */
  | { kind: 'notIdentified'; detail: string }
  /** The reader's key lacks a scope. */
  | { kind: 'notAllowed'; detail: string }
  /** The answer would be larger than the server makes one. */
  | { kind: 'tooLarge'; detail: string }
  /** The server answered with another problem. */
  | { kind: 'refused'; detail: string }

export type Outcome<T> = { ok: true; value: T } | { ok: false; failure: Failure }

interface Answer<T> {
  data?: T
  error?: unknown
  response: Response
}

/** Waits for an answer of openapi-fetch and distinguishes the kinds of failure. Never rejects. */
export async function outcomeOf<T>(asking: Promise<Answer<T>>): Promise<Outcome<T>> {
  let answer: Answer<T>
  try {
    answer = await asking
  } catch {
    // A refused connection and a body that broke off look alike to fetch.
    return { ok: false, failure: { kind: 'away' } }
  }
  if (answer.response.ok && answer.data !== undefined) return { ok: true, value: answer.data }
  return { ok: false, failure: failureOf(answer.response.status, answer.error) }
}

function failureOf(status: number, body: unknown): Failure {
  const detail = isProblem(body) ? body.detail : ''
  if (status === 404 || (status === 422 && isAboutPath(body))) return { kind: 'notFound', detail }
  if (status === 401) return { kind: 'notIdentified', detail }
  if (status === 403) return { kind: 'notAllowed', detail: detail || `HTTP ${status}` }
  if (status === 413) return { kind: 'tooLarge', detail: detail || `HTTP ${status}` }
  if (!detail && status >= 502 && status <= 504) return { kind: 'away' }
  return { kind: 'refused', detail: detail || `HTTP ${status}` }
}

function isProblem(body: unknown): body is Problem {
  return (
    typeof body === 'object' && body !== null && 'detail' in body && typeof body.detail === 'string'
  )
}

/** Whether the id in the address is malformed: for a reader that is a record that is not there. */
function isAboutPath(body: unknown): boolean {
  if (!isProblem(body) || !Array.isArray(body.errors)) return false
  return body.errors.some((error) => Array.isArray(error.loc) && error.loc[0] === 'path')
}
