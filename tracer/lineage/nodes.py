"""Rows and nodes of a tree. A row is a record as a store reads it; a node adds its children.

Both are msgspec structs, because users wait for trees of 10,000 records. Dictionaries took twice as
long, mostly for memory access. A store reads rows directly into nodes. Nodes are encoded directly
as JSON with the names of the API (`api.plans.schemas`).

The field `kind` comes first in each JSON object. Ids are text, times are aware. `gc=False` is safe,
because a tree has no reference cycles.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, final
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType

from tracer.records.record_classes import RECORDS, Kind, Shown
from tracer.records.status import Status


class TreeTotals(Struct, rename="camel", frozen=True, gc=False):
    """Sums over a part of a tree."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0
    """The sum of the known costs in US dollars; None if it is zero and some costs are unknown."""
    unpriced_calls: int = 0
    """The number of model calls that succeeded or used tokens, but have an unknown cost."""
    tool_calls: int = 0
    failures: int = 0
    """The number of failed records without a failed record below them."""


NO_TOTALS = TreeTotals()


class Row(Struct, rename="camel", tag_field="kind", gc=False):
    """The fields that all kinds of rows have."""

    kind: ClassVar[Kind]

    status: str
    """The status as the API shows it, which may be `abandoned`."""
    reason: str | None
    started_at: datetime | None
    finished_at: datetime | None
    abandoned_at: datetime | None
    duration_ms: float | None
    """The duration in milliseconds; None if the record has not started or not ended."""
    position: int | None
    masked: list[str] | None
    """Paths of masks; None if nothing is masked."""
    error: dict[str, str | None] | None
    """The keys `type`, `message` and `stack`; None if none of them was recorded. In trees that are
    read with `Payloads.NONE`, `message` and `stack` are None."""


# Rows: `make fields` writes them.


class PlanRow(Row, tag=Kind.PLAN.value):
    """A plan without its steps."""

    kind: ClassVar[Kind] = Kind.PLAN

    root_plan_id: str
    plan_id: str
    parent_plan_id: str | None
    tool_call_id: str | None
    opened_by_step_id: str | None
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

    step_id: str
    plan_id: str | None
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

    think_act_id: str
    step_id: str | None
    requested_model: str | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    thought: str | None
    thought_bytes: int | None
    thought_truncated: bool


class ToolCallRow(Row, tag=Kind.TOOL_CALL.value):
    """A tool call without its sub-plans."""

    kind: ClassVar[Kind] = Kind.TOOL_CALL

    tool_call_id: str
    step_id: str | None
    think_act_id: str | None
    parent_tool_call_id: str | None
    continued_plan_id: str | None
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
    """The tool call that started a plan, in short form."""

    tool_call_id: str
    name: str | None
    arguments: str | None
    status: str


class FailureOrigin(Struct, rename="camel", frozen=True, gc=False):
    """The origin of a failure: a failed record without a failed record below it."""

    kind: str
    id: str
    is_handled: bool
    """Whether a record above it did not fail."""


@final
class PlanNode(PlanRow, tag=Kind.PLAN.value):
    """A plan with its steps."""

    own: TreeTotals = NO_TOTALS
    """Sums over the node and its descendants, without sub-plans."""
    cumulative: TreeTotals = NO_TOTALS
    """Sums including sub-plans, even if they are not shown."""
    parent_act_tool_call: Opener | None = None
    sub_plan_count: int = 0
    """How many sub-plans its steps opened, whether shown or not."""
    agent_executions: list[StepNode] = []
    failure_origins: list[FailureOrigin] | UnsetType = UNSET
    """The top node only: the origins of its failures. Origins that made the plan fail precede
    handled origins. Then deeper origins precede others, and earlier origins precede later ones."""
    unplaced: list[Node] | UnsetType = UNSET
    """Root plans only: nodes whose parent is not known."""
    revision: int | UnsetType = UNSET
    """The top node only: the run's revision."""
    behind: Mapping[str, Any] | UnsetType | None = UNSET
    """The top node only, in the API's responses: spans that the tree does not include yet."""


@final
class StepNode(StepRow, tag=Kind.STEP.value):
    """A step with its model calls."""

    own: TreeTotals = NO_TOTALS
    cumulative: TreeTotals = NO_TOTALS
    sub_plan_count: int = 0
    """The number of sub-plans that the step opened by a hand-off, whether shown or not."""
    think_acts: list[ThinkActNode] = []
    tool_calls: list[ToolCallNode] = []
    """Calls that were made outside of any round."""
    sub_plans: list[PlanNode] = []
    """The sub-plans that the agent opened by a hand-off, without a tool call."""


@final
class ThinkActNode(ThinkActRow, tag=Kind.THINK_ACT.value):
    """A model call with the tool calls that it requested."""

    own: TreeTotals = NO_TOTALS
    cumulative: TreeTotals = NO_TOTALS
    tool_calls: list[ToolCallNode] = []


@final
class ToolCallNode(ToolCallRow, tag=Kind.TOOL_CALL.value):
    """A tool call with the sub-plans that it started and, for a batch, its items."""

    own: TreeTotals = NO_TOTALS
    cumulative: TreeTotals = NO_TOTALS
    sub_plan_count: int = 0
    """The number of sub-plans that the tool call opened, whether shown or not."""
    tool_calls: list[ToolCallNode] = []
    """The items of a batch."""
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
