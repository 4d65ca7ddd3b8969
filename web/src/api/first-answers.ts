/** The answers that were asked for before this code was there (`public/first-answers.js`). */
declare global {
  interface Window {
    firstAnswers?: Record<string, Promise<Response>>
  }
}

/** Returns the answer to a question that was asked before the viewer's code ran, once. */
export function takeFirstAnswer(request: Request): Promise<Response> | undefined {
  const { pathname, search } = new URL(request.url)
  const path = pathname + search
  const answer = window.firstAnswers?.[path]
  delete window.firstAnswers?.[path]
  return answer
}
