// Requests a run and its tree before the viewer's code is loaded. `src/api/first-answers.ts` takes
// the answers. They are blobs, because a browser reads blobs outside the page's main thread.
// It also requests the page's own scripts, which the viewer's code would request only when it runs.
{
  const run = /^\/runs\/([0-9A-Fa-f-]{36})$/.exec(location.pathname)?.[1]
  const answers = {}
  const asked = [`/api/runs/${run}`, `/api/plans/${run}/tree?payloads=excerpt`]
  for (const path of run ? asked : []) {
    answers[path] = fetch(path).then(async (answer) => new Response(await answer.blob(), answer))
    // Whoever takes it over hears of a failure.
    answers[path].catch(() => {})
  }
  window.firstAnswers = answers

  // The build writes the names of these scripts into this element (`vite.config.ts`).
  const page = run ? 'run' : location.pathname === '/runs' ? 'runs' : 'other'
  for (const href of document.currentScript?.dataset[page]?.split(' ') ?? []) {
    const link = document.createElement('link')
    document.head.append(Object.assign(link, { rel: 'modulepreload', crossOrigin: '', href }))
  }
}
