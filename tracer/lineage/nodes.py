"""Rows and nodes of a tree. A row is a record as a store reads it; a node adds its children.

Both are msgspec structs, because users wait for trees of 10,000 records. Dictionaries took twice as
long, mostly for memory access. A store reads rows directly into nodes. Nodes are encoded directly
as JSON with the names of the API, and the OpenAPI document is made from them
(`api.plans.schemas`).

The field `kind` comes first in each JSON object. Ids are text, times are aware. `gc=False` is safe,
because a tree has no reference cycles.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, TypedDict, final
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from tracer.records.record_classes import RECORDS, Kind, Shown
from tracer.records.status import ABANDONED, Status

Id = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
Time = Annotated[datetime, Meta(tz=True)]
ShownStatus = Annotated[str, Meta(extra_json_schema={"enum": [*map(str, Status), ABANDONED]})]
"""A status as shown: `abandoned` is an open record whose recorder's lease expired."""
RecordKind = Annotated[str, Meta(extra_json_schema={"enum": [*map(str, RECORDS)]})]


class TreeTotals(Struct, rename="camel", frozen=True, gc=False):
    """Totals of tokens, cost, tool calls and failures, for a part of the tree."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Annotated[
        float | None,
        Meta(
            description="The sum of the known costs in US dollars. Null if the sum is zero and "
            "the cost of at least one model call is unknown."
        ),
    ] = 0
    unpriced_calls: Annotated[
        int,
        Meta(
            description="The number of model calls whose cost is unknown. Calls that neither "
            "succeeded nor used tokens do not count."
        ),
    ] = 0
    tool_calls: int = 0
    failures: Annotated[
        int,
        Meta(description="The number of failed records that have no failed record below them."),
    ] = 0


NO_TOTALS = TreeTotals()


class RowError(TypedDict):
    """The error that a record ended with. Trees without payloads have only its type."""

    type: str | None
    message: str | None
    stack: str | None


class Row(Struct, rename="camel", tag_field="kind", gc=False):
    """The fields that all kinds of rows have."""

    kind: ClassVar[Kind]

    status: ShownStatus
    reason: str | None
    started_at: Time | None
    finished_at: Time | None
    abandoned_at: Time | None
    duration_ms: Annotated[
        float | None, Meta(description="The duration in milliseconds; null while it is open.")
    ]
    position: int | None
    masked: list[str] | None
    error: RowError | None


# Rows: `make fields` writes them.


class PlanRow(Row, tag=Kind.PLAN.value):
    """A plan without its steps."""

    kind: ClassVar[Kind] = Kind.PLAN

    root_plan_id: Id
    plan_id: Id
    parent_plan_id: Id | None
    tool_call_id: Id | None
    opened_by_step_id: Id | None
    depth: int | None
    title: str | None
    agent_name: str | None
    follows_provider_call_id: str | None
    template: str | None
    template_version: str | None
    inferred: bool
    inferred_from: str | None
    user_request: str | None
    user_request_bytes: int | None
    user_request_truncated: bool
    summary: str | None
    summary_bytes: int | None
    summary_truncated: bool


class StepRow(Row, tag=Kind.STEP.value):
    """A step without its rounds."""

    kind: ClassVar[Kind] = Kind.STEP

    step_id: Id
    plan_id: Id | None
    agent_name: str | None
    request: str | None
    request_bytes: int | None
    request_truncated: bool
    result: str | None
    result_bytes: int | None
    result_truncated: bool


class ThinkActRow(Row, tag=Kind.THINK_ACT.value):
    """A round without its tool calls."""

    kind: ClassVar[Kind] = Kind.THINK_ACT

    think_act_id: Id
    step_id: Id | None
    requested_model: str | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    inferred: bool
    inferred_from: str | None
    thought: str | None
    thought_bytes: int | None
    thought_truncated: bool


class ToolCallRow(Row, tag=Kind.TOOL_CALL.value):
    """A tool call without its sub-plans."""

    kind: ClassVar[Kind] = Kind.TOOL_CALL

    tool_call_id: Id
    step_id: Id | None
    think_act_id: Id | None
    parent_tool_call_id: Id | None
    continued_plan_id: Id | None
    provider_call_id: str | None
    name: str | None
    tool_type: str | None
    attempt: int | None
    forged_arguments: list[str]
    short_circuited_by: str | None
    still_running: bool | None
    inferred: bool
    inferred_from: str | None
    arguments: str | None
    arguments_bytes: int | None
    arguments_truncated: bool
    result: str | None
    result_bytes: int | None
    result_truncated: bool
    effective_arguments: str | None
    effective_arguments_bytes: int | None
    effective_arguments_truncated: bool
    state_changes: str | None
    state_changes_bytes: int | None
    state_changes_truncated: bool


# Rows: end.


class Opener(Struct, rename="camel", frozen=True):
    """The tool call that opened a plan, in short form."""

    tool_call_id: Id
    name: str | None
    arguments: str | None
    status: ShownStatus


class FailureOrigin(Struct, rename="camel", frozen=True, gc=False):
    """A record at which a failure began: it failed, and no record below it failed."""

    kind: RecordKind
    id: Id
    is_handled: Annotated[bool, Meta(description="Whether a record above it did not fail.")]


class MissingSpans(Struct, rename="camel", frozen=True):
    """How many accepted spans are missing in a run's records, and since when."""

    spans: int
    since: Annotated[datetime, Meta(tz=True, description="When the first missing span arrived.")]


Own = Annotated[
    TreeTotals,
    Meta(description="The totals of the node and the records below it, without sub-plans."),
]
Cumulative = Annotated[
    TreeTotals,
    Meta(
        description="The totals of the node and all records below it, including sub-plans. The "
        "parameter `depth` has no effect on them."
    ),
]
SubPlanCount = Annotated[
    int,
    Meta(
        description="The number of sub-plans that the node opened, whether the tree shows them or "
        "not."
    ),
]


@final
class PlanNode(PlanRow, tag=Kind.PLAN.value):
    """A plan, with its steps."""

    own: Own = NO_TOTALS
    cumulative: Cumulative = NO_TOTALS
    parent_act_tool_call: Opener | None = None
    sub_plan_count: SubPlanCount = 0
    agent_executions: list[StepNode] = []
    failure_origins: Annotated[
        list[FailureOrigin] | UnsetType,
        Meta(
            description="Only at the root of the tree: the records at which failures began. "
            "Records that made the root fail come first, then the deepest, then the earliest."
        ),
    ] = UNSET
    unplaced: Annotated[
        list[Node] | UnsetType,
        Meta(description="At a root plan only: nodes whose parent is not known yet."),
    ] = UNSET
    revision: Annotated[
        int | UnsetType,
        Meta(
            description="Only at the root of the tree: the run's revision. Watch the run from this "
            "revision on."
        ),
    ] = UNSET
    behind: Annotated[
        MissingSpans | UnsetType | None,
        Meta(
            description="Only at the root of the tree: the spans that the tree lacks; null if it "
            "lacks none."
        ),
    ] = UNSET


@final
class StepNode(StepRow, tag=Kind.STEP.value):
    """A step, with its rounds, its other tool calls and the sub-plans that it opened."""

    own: Own = NO_TOTALS
    cumulative: Cumulative = NO_TOTALS
    sub_plan_count: SubPlanCount = 0
    think_acts: list[ThinkActNode] = []
    tool_calls: Annotated[
        list[ToolCallNode], Meta(description="The calls that the step made outside of any round.")
    ] = []
    sub_plans: Annotated[
        list[PlanNode],
        Meta(description="The sub-plans that the agent opened without a tool call."),
    ] = []


@final
class ThinkActNode(ThinkActRow, tag=Kind.THINK_ACT.value):
    """One round, with the tool calls that its model chose."""

    own: Own = NO_TOTALS
    cumulative: Cumulative = NO_TOTALS
    tool_calls: list[ToolCallNode] = []


@final
class ToolCallNode(ToolCallRow, tag=Kind.TOOL_CALL.value):
    """A tool call, with the sub-plans that it opened."""

    own: Own = NO_TOTALS
    cumulative: Cumulative = NO_TOTALS
    sub_plan_count: SubPlanCount = 0
    tool_calls: Annotated[
        list[ToolCallNode],
        Meta(description="The calls that this call made, as the call of a batch tool does."),
    ] = []
    sub_plans: list[PlanNode] = []


Node = PlanNode | StepNode | ThinkActNode | ToolCallNode


def unknown_plan(plan_id: UUID) -> PlanNode:
    """Return the node of a root plan that has no record."""
    given = {"root_plan_id": str(plan_id), "plan_id": str(plan_id), "status": Status.UNKNOWN}
    flags = dict.fromkeys(("inferred", "user_request_truncated", "summary_truncated"), False)
    fields: dict[str, Any] = {**dict.fromkeys(PlanRow.__struct_fields__), **given, **flags}
    return PlanNode(**fields)


ROWS: dict[Kind, type[Row]] = {
    each.kind: each for each in (PlanRow, StepRow, ThinkActRow, ToolCallRow)
}
NODES: dict[Kind, type[Any]] = {
    each.kind: each for each in (PlanNode, StepNode, ThinkActNode, ToolCallNode)
}

PAYLOAD_FIELDS: dict[Kind, tuple[str, ...]] = {
    kind: tuple(name for name, field in record.model_fields.items() if Shown.CUT in field.metadata)
    for kind, record in RECORDS.items()
}
"""The fields of each kind of record that may hold long strings. A row also contains the size of
each string, and whether it was cut."""
