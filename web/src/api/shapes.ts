/** The API's own types by shorter names; `schema.d.ts` is generated from docs/openapi.json. */
import type { components } from './schema'

type Schemas = components['schemas']

export type Run = Schemas['RunSchema']
export type RunPage = Schemas['PageSchema_RunSchema_']
export type PlanNode = Schemas['PlanNode']
export type StepNode = Schemas['StepNode']
export type ThinkActNode = Schemas['ThinkActNode']
export type ToolCallNode = Schemas['ToolCallNode']
export type TreeNode = PlanNode | StepNode | ThinkActNode | ToolCallNode
export type Kind = TreeNode['kind']
export type ShownStatus = TreeNode['status']
export type NodeError = NonNullable<TreeNode['error']>
export type NodeTotals = TreeNode['own']
export type Problem = Schemas['Problem']
