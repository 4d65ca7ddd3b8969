import { expect, test } from 'vitest'
import { treeActivity } from './activity'
import { nested, plan, step, toolCall } from './example-tree'
import { buildForest } from './rows'

test('a tree is active while anything in it runs, however deep', () => {
  const running = toolCall('call', { status: 'running' })
  const sub = plan('sub', { agentExecutions: [step('s', { toolCalls: [running] })] })
  const top = plan('root', { agentExecutions: [step('t', { subPlans: [sub] })] })

  expect(treeActivity(buildForest(top))).toBe('active')
})

test('missing and abandoned records leave a tree uncertain', () => {
  expect(treeActivity(buildForest(nested([toolCall('stray', { status: 'unknown' })])))).toBe(
    'uncertain',
  )
  expect(treeActivity(buildForest(plan('root', { status: 'abandoned' })))).toBe('uncertain')
})

test('a tree whose records all ended has ended', () => {
  expect(treeActivity(buildForest(nested()))).toBe('ended')
})
