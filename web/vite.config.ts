import { gzipSync } from 'node:zlib'
import vue from '@vitejs/plugin-vue'
import type { Plugin } from 'vite'
import { defineConfig } from 'vitest/config'

const API = 'http://127.0.0.1:8420'

/** Puts each asset beside itself once more, packed: the server packs nothing (`api/viewer.py`). */
const packed: Plugin = {
  name: 'packed',
  generateBundle: {
    // After Vite itself, which still changes the code of chunks at this point.
    order: 'post',
    handler(_, bundle) {
      for (const file of Object.values(bundle)) {
        if (!/^assets\/.*\.(js|css)$/.test(file.fileName)) continue
        const source = gzipSync(file.type === 'chunk' ? file.code : file.source, { level: 9 })
        this.emitFile({ type: 'asset', fileName: `${file.fileName}.gz`, source })
      }
    },
  },
}

export default defineConfig({
  plugins: [vue(), packed],
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
    // For a machine that is busy with other tests.
    testTimeout: 60_000,
    // A fresh environment for each file takes two thirds of the time. No test depends on it.
    isolate: false,
    include: ['src/**/*.test.ts'],
  },
})
