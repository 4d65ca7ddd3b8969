import { expect, test } from 'vitest'
import { outcomeOf } from './outcome'

function answer(status: number, body?: unknown) {
  const response = new Response(null, { status })
  return Promise.resolve(status < 400 ? { data: body, response } : { error: body, response })
}

function problem(detail: string, more: object = {}) {
  return { type: 'about:blank', title: '', status: 0, code: '', detail, ...more }
}

test('an answer is its value', async () => {
  expect(await outcomeOf(answer(200, { a: 1 }))).toEqual({ ok: true, value: { a: 1 } })
})

test('a server that does not answer is away', async () => {
  const away = { ok: false, failure: { kind: 'away' } }

  expect(await outcomeOf(Promise.reject(new TypeError('refused')))).toEqual(away)
  expect(await outcomeOf(answer(502, '<html>'))).toEqual(away)
})

test('the error message of the server is used', async () => {
  expect(await outcomeOf(answer(503, problem('The database is down.')))).toEqual({
    ok: false,
    failure: { kind: 'refused', detail: 'The database is down.' },
  })
  expect(await outcomeOf(answer(500, 'oops'))).toEqual({
    ok: false,
    failure: { kind: 'refused', detail: 'HTTP 500' },
  })
})

test('a missing scope and a large answer are distinguished from other problems', async () => {
  for (const [status, kind] of [
    [403, 'notAllowed'],
    [413, 'tooLarge'],
    [409, 'refused'],
  ] as const) {
    expect(await outcomeOf(answer(status, problem('why')))).toEqual({
      ok: false,
      failure: { kind, detail: 'why' },
    })
  }
})

test('an unknown id and a malformed one are both not found', async () => {
  const malformed = problem('', { errors: [{ loc: ['path', 'rootPlanId'] }] })
  const badQuery = problem('limit', { errors: [{ loc: ['query', 'limit'] }] })

  expect(await outcomeOf(answer(404, problem('gone')))).toMatchObject({
    failure: { kind: 'notFound' },
  })
  expect(await outcomeOf(answer(422, malformed))).toMatchObject({ failure: { kind: 'notFound' } })
  expect(await outcomeOf(answer(422, badQuery))).toMatchObject({ failure: { kind: 'refused' } })
})
