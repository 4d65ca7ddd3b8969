/** The tools that a model could choose, as they were recorded: the text of a JSON array. */

export interface OfferedTool {
  name: string
  description: string
  /** Its parameters, as the text of a JSON schema; may be empty. */
  parameters: string
}

/** Returns the tools; none if the text is not an array of objects. */
export function readOfferedTools(text: string | null | undefined): OfferedTool[] {
  let parsed: unknown
  try {
    parsed = JSON.parse(text ?? '[]')
  } catch {
    return []
  }
  return Array.isArray(parsed) ? parsed.filter(isObject).map(readTool) : []
}

function readTool(value: Record<string, unknown>): OfferedTool {
  const { name, description, parameters } = value
  return {
    name: typeof name === 'string' ? name : '?',
    description: typeof description === 'string' ? description : '',
    parameters: parameters == null ? '' : JSON.stringify(parameters),
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
