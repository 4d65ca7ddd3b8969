import vue from '@vitejs/plugin-vue'
import { defineConfig } from 'vitest/config'

const API = 'http://127.0.0.1:8420'

export default defineConfig({
  plugins: [vue()],
  // Absolute, because a page is also opened under deep paths such as /runs/{id}.
  base: '/',
  define: {
    __VUE_OPTIONS_API__: false,
    __VUE_I18N_FULL_INSTALL__: false,
    __VUE_I18N_LEGACY_API__: false,
    __INTLIFY_PROD_DEVTOOLS__: false,
  },
  build: {
    outDir: '../api/static',
    emptyOutDir: true,
    // A data: URL is not from 'self', so a strict Content-Security-Policy would block it.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    host: '127.0.0.1',
    proxy: { '/api': API, '/healthz': API, '/readyz': API },
  },
  test: {
    // A test reads the style sheets; by default they would be empty.
    css: true,
    include: ['src/**/*.test.ts'],
  },
})
