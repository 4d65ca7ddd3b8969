// Applies the remembered theme and density before the first paint; `src/appearance.ts` keeps them.
try {
  for (const name of ['theme', 'density']) {
    const chosen = localStorage.getItem(`tracer.${name}`)
    if (/^[a-z]+$/.test(chosen ?? '')) document.documentElement.dataset[name] = chosen
  }
} catch {
  // The browser denies storage: the defaults apply.
}
