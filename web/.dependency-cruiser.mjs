/** The folders of `src` and which other ones each may import. Files in `src` itself may import all. */

const SHARED = ['lib', 'api', 'i18n', 'ui', 'ui/payload', 'page']

const MAY_IMPORT = {
  styles: [],
  lib: [],
  api: ['lib'],
  i18n: ['lib'],
  ui: ['lib', 'api', 'i18n'],
  'ui/payload': ['lib', 'api', 'i18n', 'ui'],
  page: ['lib', 'api', 'i18n', 'ui', 'ui/payload'],
  'run/forest': SHARED,
  'run/opening': [...SHARED, 'run/forest'],
  'run/timeline': [...SHARED, 'run/forest'],
  'run/live': [...SHARED, 'run/forest'],
  'run/details/kinds': [...SHARED, 'run/forest'],
  'run/details': [...SHARED, 'run/forest', 'run/timeline', 'run/details/kinds'],
  'run/tree': [...SHARED, 'run/forest', 'run/opening', 'run/timeline'],
  run: [
    ...SHARED,
    ...['run/forest', 'run/opening', 'run/timeline', 'run/live', 'run/details', 'run/tree'],
  ],
  runs: SHARED,
  conversations: [...SHARED, 'run/forest'],
  overview: SHARED,
  tools: SHARED,
  compare: SHARED,
  'sign-in': SHARED,
  palette: SHARED,
  projects: SHARED,
  keys: SHARED,
}

const HELPS_TESTS = String.raw`\.test\.ts$|/(mounting|example-tree|event-sources)\.ts$`

/** Matches the files of these folders, without those of folders in them. */
const filesOf = (folders) => `^src/(${folders.join('|')})/[^/]+$`

/** @type {import('dependency-cruiser').IConfiguration} */
export default {
  forbidden: [
    ...Object.entries(MAY_IMPORT).map(([folder, others]) => ({
      name: `imports-of-${folder.replaceAll('/', '-')}`,
      severity: 'error',
      from: { path: filesOf([folder]) },
      to: { path: '^src/', pathNot: filesOf([folder, ...others]) },
    })),
    {
      name: 'folder-without-rule',
      comment: 'A new folder needs a line in MAY_IMPORT.',
      severity: 'error',
      from: { path: '^src/.+/', pathNot: filesOf(Object.keys(MAY_IMPORT)) },
      to: {},
    },
    { name: 'no-circles', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'lib-is-pure',
      severity: 'error',
      from: { path: '^src/lib/', pathNot: HELPS_TESTS },
      to: { path: '^node_modules/' },
    },
    {
      name: 'ui-asks-no-server',
      comment: 'It may use the types of the API.',
      severity: 'error',
      from: { path: '^src/ui/' },
      to: { path: '^src/api/', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'ui-knows-no-addresses',
      severity: 'error',
      from: { path: '^src/ui/', pathNot: HELPS_TESTS },
      to: { path: '^node_modules/vue-router/' },
    },
    {
      name: 'test-helpers-stay-out-of-the-viewer',
      severity: 'error',
      from: { path: '^src/', pathNot: HELPS_TESTS },
      to: { path: HELPS_TESTS },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.app.json' },
  },
}
