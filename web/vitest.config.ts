import { defineConfig, mergeConfig } from 'vitest/config'
import viteConfig from './vite.config'

export default mergeConfig(
  viteConfig,
  defineConfig({
    test: {
      // A test reads the style sheets; by default they would be empty.
      css: true,
      // For a machine that is busy with other tests.
      testTimeout: 60_000,
      hookTimeout: 60_000,
      // A fresh environment for each file takes two thirds of the time. No test depends on it.
      isolate: false,
      include: ['src/**/*.test.ts'],
    },
  }),
)
