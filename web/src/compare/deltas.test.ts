import { expect, test } from 'vitest'
import { formatCost, formatDuration } from '../lib/formatting'
import { formatDelta, shownValue } from './deltas'

test.each([
  [736.6, 740.4, '737ms', '740ms', '+3ms'],
  [6.4, 7.6, '6ms', '8ms', '+2ms'],
  [7.6, 6.4, '8ms', '6ms', '−2ms'],
  [6.6, 7.4, '7ms', '7ms', '='],
  [737, 1234, '737ms', '1.2s', '+0.5s'],
  [8_040, 12_400, '8s', '12s', '+4s'],
  [300, 65_400, '300ms', '1m 5s', '+1m 5s'],
  [65_400, 3_690_000, '1m 5s', '1h 1m', '+1h'],
  [7_199_000, 3_600_000, '1h 59m', '1h 0m', '−59m'],
  [-3, 0.2, '0ms', '0ms', '='],
])('from %d to %d milliseconds, shown as %s and %s, are %s', (left, right, one, other, delta) => {
  expect([left, right].map((each) => formatDuration(each, 'en'))).toEqual([one, other])
  expect(formatDelta('duration', [left, right], 'en')).toBe(delta)
})

test.each([
  [0.00042, 0.00059, '$0.00042', '$0.00059', '+$0.00017'],
  [0.000344, 0.000416, '$0.00034', '$0.00042', '+$0.00008'],
  [0.00984, 0.00936, '$0.0098', '$0.0094', '−$0.0004'],
  [0.5, 1.254, '$0.5000', '$1.25', '+$0.75'],
  [0, 0.00012, '$0.00', '$0.00012', '+$0.00012'],
  [0, 0, '$0.00', '$0.00', '='],
])('from %d to %d dollars, shown as %s and %s, are %s', (left, right, one, other, delta) => {
  expect([left, right].map((each) => formatCost(each, 'en'))).toEqual([one, other])
  expect(formatDelta('cost', [left, right], 'en')).toBe(delta)
})

test('tokens are compared one by one', () => {
  expect(formatDelta('tokens', [926, 889], 'en')).toBe('−37')
  expect(formatDelta('tokens', [889, 2_889], 'zh-CN')).toBe('+2,000')
})

test('two values that are shown alike are equal', () => {
  expect(shownValue('duration', 736.6)).toBe(shownValue('duration', 737.4))
  expect(shownValue('cost', 0.00984)).toBeCloseTo(0.0098)
})
