import { expect, test } from 'vitest'
import { COMMAND_NAMES, COMMANDS, commandsOf, SCOPES, shownKey } from './commands'

function press(key: string, modifiers: Partial<Parameters<typeof commandsOf>[0]> = {}) {
  return commandsOf({
    ...{ key, ctrlKey: false, metaKey: false, altKey: false, shiftKey: false },
    ...modifiers,
  })
}

test('no page offers two commands with one key', () => {
  for (const page of ['list', 'run', 'compare'] as const) {
    const scopes: readonly string[] = ['everywhere', 'rows', page]
    const names = COMMAND_NAMES.filter((name) => scopes.includes(COMMANDS[name].scope))
    const keys = names.flatMap((name) => [...COMMANDS[name].keys] as string[])

    expect(new Set(keys).size).toBe(keys.length)
  }
  expect(SCOPES).toEqual(['everywhere', 'rows', 'list', 'run', 'compare'])
})

test('the first key of each command performs it', () => {
  for (const name of COMMAND_NAMES) {
    const key: string | undefined = COMMANDS[name].keys[0]
    if (key === undefined) continue
    const shiftKey = key.startsWith('Shift+') || /^[A-Z]$/.test(key)
    const ctrlKey = key.startsWith('Mod+')
    expect(press(key.replace(/^(Shift|Mod)\+/, ''), { shiftKey, ctrlKey })).toContain(name)
  }
})

test('keys of the browser and of the tree are left alone', () => {
  for (const key of ['f', 'ArrowLeft', 'Enter', ' ', 'Tab']) expect(press(key)).toEqual([])
  for (const modifier of ['ctrlKey', 'metaKey', 'altKey']) {
    for (const key of ['p', '0', 'n', 'e']) expect(press(key, { [modifier]: true })).toEqual([])
  }
  expect(press('k', { ctrlKey: true, shiftKey: true })).toEqual([])
  expect(press('k', { ctrlKey: true, metaKey: true })).toEqual([])
})

test('the palette opens with Command and with Control', () => {
  expect(press('k', { metaKey: true })).toContain('palette')
  expect(press('K', { ctrlKey: true })).toContain('palette')
})

test('letters with Shift are for names, except those of the previous failure or difference', () => {
  for (const key of ['C', 'J', 'K', 'P', 'W', 'Z']) {
    expect(press(key, { shiftKey: true })).toEqual([])
  }
  expect(press('N', { shiftKey: true })).toEqual(['previousFailure', 'previousDifference'])
})

test('Caps Lock does not change which command a letter performs', () => {
  expect(press('N')).toContain('nextFailure')
  expect(press('n', { shiftKey: true })).toContain('previousFailure')
})

test('characters that need Shift on some keyboards act with it', () => {
  expect(press('?', { shiftKey: true })).toContain('help')
  expect(press('*', { shiftKey: true })).toContain('openSiblings')
  expect(press('/', { shiftKey: true })).toContain('search')
})

test('keys are shown as the keyboard has them', () => {
  expect(shownKey('palette', true)).toBe('⌘K')
  expect(shownKey('palette', false)).toBe('Ctrl K')
  expect(shownKey('previousFailure', false)).toBe('Shift N')
  expect(shownKey('panOn', false)).toBe('Shift →')
  expect(shownKey('openKeys', false)).toBeNull()
})
