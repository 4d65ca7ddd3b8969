import { expect, test } from 'vitest'
import { completeChanges, completeTree } from './complete'
import type { PlanNode, RunChanges } from './shapes'

test('fields that the API leaves out of a tree have their defaults', () => {
  const sparse = {
    kind: 'plan',
    planId: 'p',
    rootPlanId: 'p',
    status: 'succeeded',
    agentExecutions: [
      {
        kind: 'step',
        stepId: 's',
        status: 'succeeded',
        toolCalls: [
          {
            kind: 'toolCall',
            toolCallId: 'c',
            status: 'failed',
            error: { type: 'E', message: null, stack: null },
          },
        ],
      },
    ],
  }

  const root = completeTree(sparse as unknown as PlanNode)

  expect([root.title, root.own.toolCalls, root.parentActToolCall]).toEqual([null, 0, null])
  const step = root.agentExecutions[0]!
  expect([step.thinkActs, step.subPlans, step.subPlanCount]).toEqual([[], [], 0])
  const call = step.toolCalls[0]!
  expect([call.result, call.resultTruncated, call.own.toolCalls]).toEqual([null, false, 1])
  expect([call.status, call.error?.type]).toEqual(['failed', 'E'])
})

test('a changed record has all fields, so that one that became empty is shown as empty', () => {
  const changes = { changed: [{ kind: 'step', stepId: 's', status: 'running' }], removed: [] }

  const [step] = completeChanges(changes as unknown as RunChanges).changed

  expect(step).toMatchObject({ status: 'running', result: null, error: null, planId: null })
})
