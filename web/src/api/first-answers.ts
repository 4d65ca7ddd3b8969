/** The answers that were asked for before this code was there (`public/first-answers.js`). */
declare global {
  interface Window {
    firstAnswers?: Record<string, Promise<Response>>
  }
}

/** Gives the answer to a question once, where it was asked so early. */
export function takeFirstAnswer(request: Request): Promise<Response> | undefined {
  const path = new URL(request.url).pathname
  const answer = window.firstAnswers?.[path]
  delete window.firstAnswers?.[path]
  return answer
}
