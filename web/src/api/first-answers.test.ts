// @vitest-environment happy-dom
import { afterEach, expect, test, vi } from 'vitest'
import early from '../../public/first-answers.js?raw'
import { readRun, readTree } from './client'

const RUN = '01a203b1-d1ed-7707-bfde-80a91bc08536'
const TREE = `/api/plans/${RUN}/tree?payloads=excerpt`
const asked: string[] = []
let answer = () => Promise.resolve(Response.json({ detail: 'No such run.' }, { status: 404 }))

/** Opens a page: first the script in its head, then the application. */
function open(path: string) {
  asked.length = 0
  window.location.href = `http://tracer${path}`
  vi.stubGlobal('fetch', (question: Request | string) => {
    const { pathname, search } = new URL(
      question instanceof Request ? question.url : question,
      window.location.href,
    )
    asked.push(pathname + search)
    return answer()
  })
  new Function(early)()
}

afterEach(() => vi.unstubAllGlobals())

test('a run and its tree are requested once, before the viewer loads', async () => {
  answer = () => Promise.resolve(Response.json({ kind: 'plan', planId: RUN }))
  open(`/runs/${RUN}`)
  const paths = [`/api/runs/${RUN}`, TREE]
  expect(asked).toEqual(paths)

  expect(await readRun(RUN)).toMatchObject({ ok: true, value: { planId: RUN } })
  expect(await readTree(RUN)).toMatchObject({ ok: true, value: { planId: RUN } })
  expect(asked).toEqual(paths)
  await readTree(RUN)
  expect(asked).toEqual([...paths, TREE])
})

test('the error of an early request reaches its caller', async () => {
  answer = () => Promise.resolve(Response.json({ detail: 'No such run.' }, { status: 404 }))
  open(`/runs/${RUN}`)
  expect(await readTree(RUN)).toEqual({
    ok: false,
    failure: { kind: 'notFound', detail: 'No such run.' },
  })

  answer = () => Promise.reject(new TypeError('Failed to fetch'))
  open(`/runs/${RUN}`)
  expect(await readTree(RUN)).toEqual({ ok: false, failure: { kind: 'away' } })
})

test('other pages ask nothing early', () => {
  for (const path of ['/', '/tools', `/compare/${RUN}`, '/runs/x']) {
    open(path)
    expect(asked).toEqual([])
  }
})

test('a page preloads the scripts that the build names for it', () => {
  const script = document.createElement('script')
  Object.assign(script.dataset, { run: '/assets/run.js /assets/tree.js', runs: '/assets/list.js' })
  const current = vi.spyOn(document, 'currentScript', 'get').mockReturnValue(script)
  const preloaded = (path: string) => {
    document.head.replaceChildren()
    open(path)
    const links = document.head.querySelectorAll('link[rel=modulepreload][crossorigin]')
    return Array.from(links, (link) => link.getAttribute('href'))
  }
  expect(preloaded(`/runs/${RUN}`)).toEqual(['/assets/run.js', '/assets/tree.js'])
  expect(preloaded('/runs')).toEqual(['/assets/list.js'])
  expect(preloaded('/tools')).toEqual([])
  current.mockRestore()
})
