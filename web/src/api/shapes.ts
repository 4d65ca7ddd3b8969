/** The API's own types by shorter names; `schema.d.ts` is generated from docs/openapi.json. */
import type { components } from './schema'

type Schemas = components['schemas']

export type Run = Schemas['RunPreviewSchema']
export type SingleRun = Schemas['SingleRunSchema']
export type RunPage = Schemas['SearchedPageSchema_RunPreviewSchema_']
export type PlanNode = Schemas['PlanNode']
export type StepNode = Schemas['StepNode']
export type ThinkActNode = Schemas['ThinkActNode']
export type ToolCallNode = Schemas['ToolCallNode']
export type TreeNode = PlanNode | StepNode | ThinkActNode | ToolCallNode
export type Kind = TreeNode['kind']
export type ShownStatus = TreeNode['status']
export type NodeError = NonNullable<TreeNode['error']>
export type NodeTotals = TreeNode['own']
export type RunChanges = Schemas['RunChanges']
export type Span = Schemas['SpanSchema']
export type LogRecord = Schemas['LogSchema']
export type Lease = Schemas['LeaseSchema']
export type SpanPage = Schemas['SpanPage']
export type Caller = Schemas['CallerSchema']
export type Problem = Schemas['Problem']
export type RunDiff = Schemas['RunDiff']
export type RecordPair = Schemas['RecordPair']
export type ComparedRecord = Schemas['ComparedRecord']
export type ComparedRun = Schemas['ComparedRun']
export type Difference = Schemas['Difference']
export type ToolStats = Schemas['ToolStatsSchema']
export type ToolStatsList = Schemas['ToolStatsList']
export type ToolHistory = Schemas['ToolHistorySchema']
export type CallBucket = Schemas['CallBucketSchema']
export type NamedCall = Schemas['NamedCallSchema']
