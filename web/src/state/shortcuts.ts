/** Single keys that act anywhere on a run's page but where text is typed. */
import { onBeforeUnmount, onMounted, shallowRef, watch } from 'vue'

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
  help: ['?'],
} as const

export type ShortcutName = keyof typeof SHORTCUTS

const CHOICE = 'tracer.shortcuts'
/** A name that is typed to be found in the tree ends when nothing is typed for so long. */
const TYPING = 1_000

const names = new Map(
  Object.entries(SHORTCUTS).flatMap(([name, keys]) =>
    keys.map((key) => [key as string, name as ShortcutName] as const),
  ),
)

/** The shortcut that a key press stands for, or null. */
export function shortcutOf(event: KeyboardEvent): ShortcutName | null {
  if (event.ctrlKey || event.metaKey || event.altKey) return null
  const isArrow = event.key.startsWith('Arrow')
  return names.get(isArrow && event.shiftKey ? `Shift+${event.key}` : event.key) ?? null
}

const TYPED_IN = 'input, textarea, select, [contenteditable], [role="dialog"], [role="menu"]'

/** Calls `act` for each shortcut that is pressed; readers can turn all of them off. */
export function useShortcuts(act: (name: ShortcutName) => void) {
  const enabled = shallowRef(remembered())
  let typedAt = -Infinity

  function onKeydown(event: KeyboardEvent) {
    const target = event.target instanceof Element ? event.target : null
    if (!enabled.value || target?.closest(TYPED_IN)) return
    const name = shortcutOf(event)
    const inTree = target?.closest('[role="tree"]') != null
    const isTyping = inTree && event.timeStamp - typedAt < TYPING
    if (name === null || (isTyping && event.key.length === 1)) {
      // A name that is typed to be found in the tree may go on with any letter.
      if (inTree && event.key.length === 1) typedAt = event.timeStamp
      return
    }
    event.preventDefault()
    event.stopPropagation()
    act(name)
  }

  watch(enabled, remember)
  onMounted(() => document.addEventListener('keydown', onKeydown, { capture: true }))
  onBeforeUnmount(() => document.removeEventListener('keydown', onKeydown, { capture: true }))
  return { enabled }
}

function remembered(): boolean {
  try {
    return localStorage.getItem(CHOICE) !== 'off'
  } catch {
    // Storage that the browser denies.
    return true
  }
}

function remember(enabled: boolean): void {
  try {
    localStorage.setItem(CHOICE, enabled ? 'on' : 'off')
  } catch {
    // Storage that the browser denies: the choice holds until the page is left.
  }
}
