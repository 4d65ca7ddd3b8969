import { expect, test } from 'vitest'
import { COMMAND_NAMES, COMMANDS, commandOf, shownKey } from './commands'

function press(key: string, modifiers: Partial<Parameters<typeof commandOf>[0]> = {}) {
  return commandOf({
    ...{ key, ctrlKey: false, metaKey: false, altKey: false, shiftKey: false },
    ...modifiers,
  })
}

test('each key belongs to one command', () => {
  const keys = COMMAND_NAMES.flatMap((name) => [...COMMANDS[name].keys] as string[])

  expect(new Set(keys).size).toBe(keys.length)
})

test('the first key of each command performs it', () => {
  for (const name of COMMAND_NAMES) {
    const key: string | undefined = COMMANDS[name].keys[0]
    if (key === undefined) continue
    const shiftKey = key.startsWith('Shift+') || /^[A-Z]$/.test(key)
    const ctrlKey = key.startsWith('Mod+')
    expect(press(key.replace(/^(Shift|Mod)\+/, ''), { shiftKey, ctrlKey })).toBe(name)
  }
})

test('keys of the browser and of the tree are left alone', () => {
  for (const key of ['f', 'ArrowLeft', 'Enter', ' ', 'Tab']) expect(press(key)).toBeNull()
  for (const modifier of ['ctrlKey', 'metaKey', 'altKey']) {
    for (const key of ['p', '0', 'n', 'e']) expect(press(key, { [modifier]: true })).toBeNull()
  }
  expect(press('k', { ctrlKey: true, shiftKey: true })).toBeNull()
  expect(press('k', { ctrlKey: true, metaKey: true })).toBeNull()
})

test('the palette opens with Command and with Control', () => {
  expect(press('k', { metaKey: true })).toBe('palette')
  expect(press('K', { ctrlKey: true })).toBe('palette')
})

test('letters with Shift are for names, except that of the previous failure', () => {
  for (const key of ['C', 'J', 'K', 'P', 'W', 'Z']) {
    expect(press(key, { shiftKey: true })).toBeNull()
  }
  expect(press('N', { shiftKey: true })).toBe('previousFailure')
})

test('Caps Lock does not change which command a letter performs', () => {
  expect(press('N')).toBe('nextFailure')
  expect(press('n', { shiftKey: true })).toBe('previousFailure')
})

test('characters that need Shift on some keyboards act with it', () => {
  expect(press('?', { shiftKey: true })).toBe('help')
  expect(press('*', { shiftKey: true })).toBe('openSiblings')
  expect(press('/', { shiftKey: true })).toBe('search')
})

test('keys are shown as the keyboard has them', () => {
  expect(shownKey('palette', true)).toBe('⌘K')
  expect(shownKey('palette', false)).toBe('Ctrl K')
  expect(shownKey('previousFailure', false)).toBe('Shift N')
  expect(shownKey('panOn', false)).toBe('Shift →')
  expect(shownKey('openKeys', false)).toBeNull()
})
