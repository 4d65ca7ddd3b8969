import { expect, test } from 'vitest'
import { treeActivity } from './activity'
import { nested, plan, step, toolCall } from './example-tree'

test('a tree is active while anything in it runs, however deep', () => {
  const running = toolCall('call', { status: 'running' })
  const sub = plan('sub', { agentExecutions: [step('s', { toolCalls: [running] })] })
  const top = plan('root', { agentExecutions: [step('t', { subPlans: [sub] })] })

  expect(treeActivity(top)).toBe('active')
})

test('missing and abandoned records leave a tree uncertain', () => {
  expect(treeActivity(nested([toolCall('stray', { status: 'unknown' })]))).toBe('uncertain')
  expect(treeActivity(plan('root', { status: 'abandoned' }))).toBe('uncertain')
})

test('a tree whose records all ended has ended', () => {
  expect(treeActivity(nested())).toBe('ended')
})
