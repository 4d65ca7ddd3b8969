// The tools of the scenarios, for the drivers of JavaScript.

/** What `drive_node.py` passes: prompt, addresses, and the tools and parameters of `scenarios.py`. */
export const run = JSON.parse(process.argv[2])

/** Returns what a tool answers; `ask` runs the agent of a delegating tool. */
export async function resultOf(tool, value, ask) {
  if (tool in run.delegates) return ask(run.delegates[tool], value)
  await new Promise((resolve) => setTimeout(resolve, 10))
  if (value.includes('closed')) throw new Error(`${value} is not open`)
  return {
    weather: `${value}: 12 degrees`,
    search: `3 hits for ${value}`,
    fetch: `the text of ${value}`,
  }[tool]
}
