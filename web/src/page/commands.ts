/** Which commands can be performed now, and the keys that perform them. */
import { useEventListener } from '@vueuse/core'
import { computed, onScopeDispose, shallowReactive } from 'vue'
import { commandsOf, isChord, type CommandName } from '../lib/commands'
import { usePreference } from './preferences'

export type Commands = Partial<Record<CommandName, () => void>>

/** The commands of each part of the page, latest last: they replace earlier ones. */
const offered = shallowReactive(new Set<() => Commands>())

/** Offers commands as long as the calling component is shown. */
export function useCommands(commands: () => Commands): void {
  offered.add(commands)
  onScopeDispose(() => offered.delete(commands))
}

/** The commands that can be performed now. */
export const performable = computed<Commands>(() =>
  Object.assign({}, ...[...offered].map((commands) => commands())),
)

/** Performs a command. Returns whether the page offers it. */
export function perform(name: CommandName): boolean {
  const act = performable.value[name]
  act?.()
  return act !== undefined
}

/** Whether single keys act: readers can turn them off. */
export function useKeysEnabled() {
  const stored = usePreference('shortcuts')
  return computed({
    get: () => stored.value !== 'off',
    set: (on) => (stored.value = on ? null : 'off'),
  })
}

const IN_DIALOG = '[role="dialog"], [role="menu"]'
const TYPED_IN = `input:not([type="checkbox"]), textarea, select, [contenteditable], ${IN_DIALOG}`

/** A name that is typed to be found in the tree ends when nothing is typed for so long. */
const TYPING = 1_000
/** Characters that a typed name may continue with, although they are commands by themselves. */
const IN_NAMES = /^[\p{L}\p{N}_-]$/u

/** Performs the command of each key, except where text is typed. */
export function useCommandKeys(): void {
  const enabled = useKeysEnabled()
  let typedAt = -Infinity

  function onKeydown(event: KeyboardEvent) {
    const target = event.target instanceof Element ? event.target : null
    const chord = isChord(event)
    if (target?.closest(chord ? IN_DIALOG : TYPED_IN) || (!chord && !enabled.value)) return
    const name = commandsOf(event).find((each) => each in performable.value) ?? null
    const inTree = target?.closest('[role="tree"]') != null
    const isTyping = inTree && event.timeStamp - typedAt < TYPING
    if (name === null || (!chord && isTyping && IN_NAMES.test(event.key))) {
      if (inTree && event.key.length === 1) typedAt = event.timeStamp
      return
    }
    perform(name)
    event.preventDefault()
    event.stopPropagation()
  }

  // Before the tree, whose names are found by their letters.
  useEventListener(document, 'keydown', onKeydown, { capture: true })
}

/** Whether the keyboard has a Command key. */
export const isMac = /^Mac/.test(navigator.platform)
