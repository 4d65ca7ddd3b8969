/** Every command of the viewer and its keys: the palette, the keys and the help derive from it. */

/** Where a command is offered, in the order of the help. */
export const SCOPES = ['everywhere', 'rows', 'list', 'run', 'compare'] as const

interface Command {
  scope: (typeof SCOPES)[number]
  /** Its keys; the help shows the first. Without one, it is in the palette only. */
  keys: readonly string[]
}

/** The modifier of a chord: Command on a Mac, Control elsewhere. */
const CHORD = 'Mod+'

export const COMMANDS = {
  palette: { scope: 'everywhere', keys: ['Mod+k'] },
  search: { scope: 'everywhere', keys: ['/'] },
  copyLink: { scope: 'everywhere', keys: ['y'] },
  help: { scope: 'everywhere', keys: ['?'] },
  openOverview: { scope: 'everywhere', keys: [] },
  openRuns: { scope: 'everywhere', keys: [] },
  openConversations: { scope: 'everywhere', keys: [] },
  openTools: { scope: 'everywhere', keys: [] },
  openKeys: { scope: 'everywhere', keys: [] },
  changeTheme: { scope: 'everywhere', keys: [] },
  changeDensity: { scope: 'everywhere', keys: [] },
  changeLanguage: { scope: 'everywhere', keys: [] },
  changeProject: { scope: 'everywhere', keys: [] },
  signOut: { scope: 'everywhere', keys: [] },
  nextRow: { scope: 'rows', keys: ['j'] },
  previousRow: { scope: 'rows', keys: ['k'] },
  pick: { scope: 'list', keys: ['x'] },
  comparePicked: { scope: 'list', keys: ['c'] },
  exportPicked: { scope: 'list', keys: ['e'] },
  nextFailure: { scope: 'run', keys: ['n'] },
  previousFailure: { scope: 'run', keys: ['N'] },
  previousRun: { scope: 'run', keys: ['['] },
  nextRun: { scope: 'run', keys: [']'] },
  parentCall: { scope: 'run', keys: ['p'] },
  openSiblings: { scope: 'run', keys: ['*'] },
  levels: { scope: 'run', keys: ['c'] },
  allRecords: { scope: 'run', keys: [] },
  waterfall: { scope: 'run', keys: ['w'] },
  zoomIn: { scope: 'run', keys: ['+', '='] },
  zoomOut: { scope: 'run', keys: ['-', '_'] },
  zoomWhole: { scope: 'run', keys: ['0'] },
  zoomSelected: { scope: 'run', keys: ['z'] },
  panBack: { scope: 'run', keys: ['Shift+ArrowLeft'] },
  panOn: { scope: 'run', keys: ['Shift+ArrowRight'] },
  compare: { scope: 'run', keys: [] },
  export: { scope: 'run', keys: ['e'] },
  exportOtlp: { scope: 'run', keys: [] },
  nextDifference: { scope: 'compare', keys: ['n'] },
  previousDifference: { scope: 'compare', keys: ['N'] },
} as const satisfies Record<string, Command>

export type CommandName = keyof typeof COMMANDS

export const COMMAND_NAMES = Object.keys(COMMANDS) as CommandName[]

/** The keys of the run's tree, by the text that the help has for them. */
export const TREE_KEYS = {
  move: '↑ ↓ Home End',
  openClose: '→ ←',
  typeAhead: 'A … Z',
  typeQuick: 'Shift A … Z',
  select: 'Enter',
} as const

/** The commands of each key. Several may share one if no page offers them together. */
const byKey = new Map<string, CommandName[]>()
for (const name of COMMAND_NAMES)
  for (const key of COMMANDS[name].keys) byKey.set(key, [...(byKey.get(key) ?? []), name])

type KeyPress = Pick<KeyboardEvent, 'key' | 'ctrlKey' | 'metaKey' | 'altKey' | 'shiftKey'>

/** Whether a key press has a modifier that makes it a chord. */
export function isChord(press: KeyPress): boolean {
  return press.ctrlKey || press.metaKey || press.altKey
}

/** Returns the commands of a key press; a page offers at most one of them. */
export function commandsOf(press: KeyPress): readonly CommandName[] {
  return byKey.get(keyOf(press) ?? '') ?? []
}

/** Returns a key press as the table writes it; null if no command could have it. */
function keyOf(press: KeyPress): string | null {
  const { key, shiftKey } = press
  if (isChord(press)) {
    if (press.altKey || shiftKey || press.ctrlKey === press.metaKey) return null
    return CHORD + key.toLowerCase()
  }
  if (key.startsWith('Arrow')) return shiftKey ? `Shift+${key}` : null
  if (!/^[a-z]$/i.test(key)) return key
  // Caps Lock is no Shift.
  return shiftKey ? key.toUpperCase() : key.toLowerCase()
}

/** Returns the key of a command as a reader sees it; null if it has none. */
export function shownKey(name: CommandName, isMac: boolean): string | null {
  const key: string | undefined = COMMANDS[name].keys[0]
  if (key === undefined) return null
  if (key.startsWith(CHORD)) {
    const letter = key.slice(CHORD.length).toUpperCase()
    return isMac ? `⌘${letter}` : `Ctrl ${letter}`
  }
  if (/^[A-Z]$/.test(key)) return `Shift ${key}`
  return key.replace('Shift+ArrowLeft', 'Shift ←').replace('Shift+ArrowRight', 'Shift →')
}
