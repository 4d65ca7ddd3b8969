import { expect, test } from 'vitest'
import { readOfferedTools } from './offered-tools'

test('offered tools are read by name, description and parameters', () => {
  const schema = { type: 'object' }
  const text = JSON.stringify([{ name: 'look', description: 'Looks', parameters: schema }, {}, 7])

  expect(readOfferedTools(text)).toEqual([
    { name: 'look', description: 'Looks', parameters: '{"type":"object"}' },
    { name: '?', description: '', parameters: '' },
  ])
  expect(readOfferedTools(null)).toEqual([])
  expect(readOfferedTools('nonsense')).toEqual([])
})
