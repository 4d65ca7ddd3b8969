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
