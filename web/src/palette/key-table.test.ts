import { expect, test } from 'vitest'
import guide from '../../../docs/guides/viewer.md?raw'
import en from '../i18n/en.json'
import { COMMAND_NAMES, COMMANDS, SCOPES, shownKey, TREE_KEYS } from '../lib/commands'

function table(): string {
  const rows = SCOPES.flatMap((scope) =>
    COMMAND_NAMES.filter((name) => COMMANDS[name].scope === scope).map((name) => {
      const key = shownKey(name, false)
      return `| ${en.keys.in[scope]} | ${key ? `\`${key}\`` : ''} | ${en.keys[name]} |`
    }),
  )
  const tree = Object.entries(TREE_KEYS).map(
    ([name, keys]) =>
      `| ${en.keys.inTree} | \`${keys}\` | ${en.keys[name as keyof typeof TREE_KEYS]} |`,
  )
  return ['| where | key | command |', '|---|---|---|', ...rows, ...tree].join('\n')
}

test('the guide lists every command as the help does', () => {
  const listed = guide.slice(guide.indexOf('| where |')).split('\n\n')[0]

  expect(listed).toBe(table())
})
