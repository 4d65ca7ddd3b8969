/** The long strings of two compared records: the input and the output of each. */
import { readPlan, readStep, readThinkAct, readToolCall } from '../api/client'
import type { Outcome } from '../api/outcome'
import { errorText } from '../lib/payload-text'
import { planIdOf, roundBefore, type DiffRow } from './diff-rows'
import { newMessagesText } from './new-messages-text'

export interface Texts {
  input: string | null
  output: string | null
  error: string | null
}

export type Side = 'left' | 'right'

const NO_TEXTS: Texts = { input: null, output: null, error: null }

/** Reads both sides of a row; a side that is not there has no texts. */
export async function readTexts(row: DiffRow): Promise<Outcome<Record<Side, Texts>>> {
  const [left, right] = await Promise.all([readSide(row, 'left'), readSide(row, 'right')])
  if (!left.ok) return left
  if (!right.ok) return right
  return { ok: true, value: { left: left.value, right: right.value } }
}

async function readSide(row: DiffRow, side: Side): Promise<Outcome<Texts>> {
  const { kind, [side]: record } = row.pair
  if (record === null) return { ok: true, value: NO_TEXTS }
  switch (kind) {
    case 'plan':
      return textsOf(await readPlan(record.id), (plan) => [plan.userRequest, plan.summary])
    case 'step': {
      const planId = planIdOf(row, side)
      if (planId === null) return { ok: true, value: NO_TEXTS }
      return textsOf(await readStep(planId, record.id), (step) => [step.request, step.result])
    }
    case 'thinkAct': {
      const before = roundBefore(row, side)
      const [round, earlier] = await Promise.all([
        readThinkAct(record.id),
        before === null ? null : readThinkAct(before),
      ])
      const known = earlier?.ok ? earlier.value.conversation : null
      return textsOf(round, (whole) => [newMessagesText(whole.conversation, known), whole.thought])
    }
    default:
      return textsOf(await readToolCall(record.id), (call) => [call.arguments, call.result])
  }
}

function textsOf<Whole extends { error: { type: string | null; message: string | null } | null }>(
  answer: Outcome<Whole>,
  of: (whole: Whole) => [input: string | null, output: string | null],
): Outcome<Texts> {
  if (!answer.ok) return answer
  const [input, output] = of(answer.value)
  const { error } = answer.value
  const shown = error && errorText(error.type, error.message)
  return { ok: true, value: { input, output, error: shown } }
}
