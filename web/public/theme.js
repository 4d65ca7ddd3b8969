// Takes over the chosen theme before anything is painted; `src/theme.ts` keeps it.
try {
  const theme = localStorage.getItem('tracer.theme')
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme
} catch {
  // Storage that the browser denies: the system's theme it is.
}
