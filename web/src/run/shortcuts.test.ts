// @vitest-environment happy-dom
import { expect, test } from 'vitest'
import { SHORTCUTS, shortcutOf } from './shortcuts'

function press(key: string, modifiers: KeyboardEventInit = {}) {
  return shortcutOf(new KeyboardEvent('keydown', { key, ...modifiers }))
}

test('each key stands for one shortcut', () => {
  const keys = Object.values(SHORTCUTS).flat()

  expect(new Set(keys).size).toBe(keys.length)
  for (const [name, [key]] of Object.entries(SHORTCUTS)) {
    const shiftKey = key.startsWith('Shift+')
    expect(press(key.replace('Shift+', ''), { shiftKey })).toBe(name)
  }
})

test('keys of the browser and of the tree are left alone', () => {
  expect(press('f')).toBeNull()
  expect(press('ArrowLeft')).toBeNull()
  expect(press('Enter')).toBeNull()
  for (const modifier of ['ctrlKey', 'metaKey', 'altKey']) {
    expect(press('p', { [modifier]: true })).toBeNull()
    expect(press('0', { [modifier]: true })).toBeNull()
  }
})

test('with Shift a letter belongs to a name that is typed, and Caps Lock is no Shift', () => {
  for (const key of ['C', 'J', 'K', 'P', 'W', 'Z']) {
    expect(press(key, { shiftKey: true })).toBeNull()
    expect(press(key)).toBe(press(key.toLowerCase()))
    expect(press(key)).not.toBeNull()
  }
})

test('signs that need Shift on some keyboards act with it', () => {
  expect(press('?', { shiftKey: true })).toBe('help')
  expect(press('*', { shiftKey: true })).toBe('openSiblings')
  expect(press('/', { shiftKey: true })).toBe('search')
})
