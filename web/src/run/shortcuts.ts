/**
 * Single keys that act anywhere on a run's page but where text is typed. In the tree the letters
 * among them act too; with Shift they begin a name that is typed to be found, as all others do.
 */
import { onBeforeUnmount, onMounted, shallowRef, watch } from 'vue'
import { rememberChoice, rememberedChoice } from '../page/reader-choices'

export const SHORTCUTS = {
  search: ['/'],
  nextFailure: ['j'],
  previousFailure: ['k'],
  parentCall: ['p'],
  openSiblings: ['*'],
  levels: ['c'],
  waterfall: ['w'],
  zoomIn: ['+', '='],
  zoomOut: ['-', '_'],
  zoomWhole: ['0'],
  zoomSelected: ['z'],
  panBack: ['Shift+ArrowLeft'],
  panOn: ['Shift+ArrowRight'],
  previousRun: ['['],
  nextRun: [']'],
  copyLink: ['y'],
  help: ['?'],
} as const

export type ShortcutName = keyof typeof SHORTCUTS

/** A name that is typed to be found in the tree ends when nothing is typed for so long. */
const TYPING = 1_000

const names = new Map(
  Object.entries(SHORTCUTS).flatMap(([name, keys]) =>
    keys.map((key) => [key as string, name as ShortcutName] as const),
  ),
)

/** Characters that a typed name may continue with, although they are shortcuts by themselves. */
const IN_NAMES = /^[\p{L}\p{N}_-]$/u

/** The shortcut of a key press, or null. */
export function shortcutOf(event: KeyboardEvent): ShortcutName | null {
  if (event.ctrlKey || event.metaKey || event.altKey) return null
  const { key, shiftKey } = event
  if (key.startsWith('Arrow')) return (shiftKey && names.get(`Shift+${key}`)) || null
  // Which letter it is, whether or not Caps Lock is on.
  const isLetter = /^[a-z]$/i.test(key)
  if (isLetter && shiftKey) return null
  return names.get(isLetter ? key.toLowerCase() : key) ?? null
}

const TYPED_IN = 'input, textarea, select, [contenteditable], [role="dialog"], [role="menu"]'

/** Calls `act` for each shortcut that is pressed; readers can turn all of them off. */
export function useShortcuts(act: (name: ShortcutName) => void) {
  const enabled = shallowRef(rememberedChoice('shortcuts') !== 'off')
  let typedAt = -Infinity

  function onKeydown(event: KeyboardEvent) {
    const target = event.target instanceof Element ? event.target : null
    if (!enabled.value || target?.closest(TYPED_IN)) return
    const name = shortcutOf(event)
    const inTree = target?.closest('[role="tree"]') != null
    const isTyping = inTree && event.timeStamp - typedAt < TYPING
    if (name === null || (isTyping && IN_NAMES.test(event.key))) {
      if (inTree && event.key.length === 1) typedAt = event.timeStamp
      return
    }
    event.preventDefault()
    event.stopPropagation()
    act(name)
  }

  watch(enabled, (on) => rememberChoice('shortcuts', on ? null : 'off'))
  onMounted(() => document.addEventListener('keydown', onKeydown, { capture: true }))
  onBeforeUnmount(() => document.removeEventListener('keydown', onKeydown, { capture: true }))
  return { enabled }
}
