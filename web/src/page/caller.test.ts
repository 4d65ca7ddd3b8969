import { expect, test } from 'vitest'
import { pathAfterSignIn } from './caller'

test('after sign-in the user returns to the previous page', () => {
  expect(pathAfterSignIn('/runs/1?select=2')).toBe('/runs/1?select=2')
})

test.each(['//evil.example/', '/\\evil.example', 'https://evil.example', '', null, ['/runs']])(
  'an address leads nowhere but into the viewer: %s',
  (to) => {
    expect(pathAfterSignIn(to)).toBe('/')
  },
)
