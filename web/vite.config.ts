import { gzipSync } from 'node:zlib'
import vue from '@vitejs/plugin-vue'
import { defineConfig, type Plugin, type Rolldown } from 'vite'

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

/** The pages that most readers open first, by the file of each. */
const FIRST_PAGES = { run: '/run/run-view.vue', runs: '/runs/run-list-view.vue' }

/** Writes the names of the first pages' scripts into the document, for `public/first-answers.js`. */
const preloads: Plugin = {
  name: 'preloads',
  apply: 'build',
  transformIndexHtml: {
    order: 'post',
    handler(html, { bundle = {}, chunk: entry }) {
      const names = Object.entries(FIRST_PAGES).map(([page, path]) => {
        const files = filesOf(bundle, ({ facadeModuleId }) => !!facadeModuleId?.endsWith(path))
        for (const file of filesOf(bundle, ({ fileName }) => fileName === entry?.fileName))
          files.delete(file)
        return `data-${page}="${[...files].map((file) => `/${file}`).join(' ')}"`
      })
      return html.replace('src="/first-answers.js"', `$& ${names.join(' ')}`)
    },
  },
}

/** Returns the names of some chunks, and of all chunks that they import. */
function filesOf(
  bundle: Rolldown.OutputBundle,
  isWanted: (chunk: Rolldown.OutputChunk) => boolean,
) {
  const files = new Set<string>()
  const waiting = Object.values(bundle).filter((each) => each.type === 'chunk' && isWanted(each))
  for (const each of waiting) {
    if (each.type !== 'chunk' || files.has(each.fileName)) continue
    files.add(each.fileName)
    waiting.push(...each.imports.flatMap((name) => bundle[name] ?? []))
  }
  return files
}

/** Names the chunk of a module that several pages share. */
function partOf(id: string, infoOf: (id: string) => Rolldown.ModuleInfo | null): string {
  const seen = new Set<string>()
  const waiting = [id]
  for (const each of waiting) {
    if (each.endsWith(FIRST_PAGES.runs)) return 'list'
    if (seen.has(each)) continue
    seen.add(each)
    waiting.push(...(infoOf(each)?.importers ?? []))
  }
  return 'shared'
}

export default defineConfig({
  plugins: [vue(), packed, preloads],
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
    // One style sheet of 13 kB is loaded sooner than the six of a page.
    cssCodeSplit: false,
    rolldownOptions: {
      output: {
        // By default, each set of pages that share modules has a chunk of its own: a page requests 50
        // files. With these groups it requests five: one chunk has the modules that the list shares,
        // and another one has the other shared modules.
        codeSplitting: {
          groups: [
            { name: 'initial', tags: ['$initial'], priority: 2 },
            {
              debugName: 'shared by pages',
              name: (id, context) => partOf(id, (each) => context.getModuleInfo(each)),
              minShareCount: 2,
              priority: 1,
            },
          ],
        },
      },
    },
  },
  server: {
    host: '127.0.0.1',
    proxy: { '/api': API, '/healthz': API, '/readyz': API },
  },
})
