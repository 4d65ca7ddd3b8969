import { expect, test } from 'vitest'
import { blobIn, readDataUri } from './data-uri'
import { readJson } from './json-outline'

test('a data URI states its type and size, and how it is shown', () => {
  expect(readDataUri('data:image/png;base64,AAAA')).toEqual({
    mediaType: 'image/png',
    bytes: 3,
    kind: 'image',
  })
  expect(readDataUri('data:audio/mpeg;base64,AAA=')?.kind).toBe('audio')
  expect(readDataUri('data:video/webm;codecs=vp9;base64,AA==')).toMatchObject({
    kind: 'video',
    bytes: 1,
  })
  for (const type of ['image/svg+xml', 'text/html', 'application/pdf']) {
    expect(readDataUri(`data:${type};base64,AAAA`)?.kind).toBeNull()
  }
  expect(readDataUri(`data:image/png;base64,${'A'.repeat(6_700_000)}`)?.kind).toBeNull()
  for (const text of ['data:', 'data: an answer', 'https://example.com/a.png', 'data:image/png']) {
    expect(readDataUri(text)).toBeNull()
  }
})

test('blob parts of known formats are found, and other objects are not', () => {
  const data = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB'
  const uri = (type: string) => `data:${type};base64,${data}`
  const found = (value: object) => {
    const text = JSON.stringify(value)
    return blobIn(text, readJson(text)!)?.uri ?? null
  }

  expect(found({ type: 'blob', mime_type: 'image/png', content: data })).toBe(uri('image/png'))
  expect(found({ type: 'image', data, mimeType: 'image/webp' })).toBe(uri('image/webp'))
  expect(found({ type: 'base64', media_type: 'image/gif', data })).toBe(uri('image/gif'))
  expect(found({ format: 'wav', data })).toBe(uri('audio/wav'))
  expect(found({ format: 'text', content: 'a plain sentence that is long enough' })).toBeNull()
  expect(found({ media_type: 'image/png', content: 'not base64 but a long sentence' })).toBeNull()
  expect(found({ data })).toBeNull()
})
