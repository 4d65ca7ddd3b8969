"""Build the tree of a run from rows, compute its totals, and find the origins of failures.

All functions are pure. Building a tree always terminates. A node is returned in `unplaced` if its
parent is unknown, or if its parents form a cycle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import Annotated, Any, ClassVar, NamedTuple, TypedDict, cast, final
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from tracer.records import ABANDONED, Kind, Status
from tracer.records.prices import is_unpriced, known_total
from tracer.records.record_classes import RECORDS, Shown

# --- Rows and nodes of a tree. A row is a record as a store reads it; a node adds its children.
#
# Both are msgspec structs, because users wait for trees of 10,000 records. Dictionaries took twice
# as long, mostly for memory access. A store reads rows directly into nodes. Nodes are encoded
# directly as JSON with the names of the API, and the OpenAPI document is made from them
# (`api.routes.plans`).
#
# The field `kind` comes first in each JSON object. Ids are text, times are aware. `gc=False` is
# safe, because a tree has no reference cycles.

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
ONE_CALL = TreeTotals(tool_calls=1)


class RowError(TypedDict):
    """The error that a record ended with. Trees without payloads have only its type."""

    type: str | None
    message: str | None
    stack: str | None


class Row(Struct, rename="camel", tag_field="kind", gc=False, omit_defaults=True):
    """The fields that all kinds of rows have. JSON leaves out fields that have their default."""

    kind: ClassVar[Kind]

    status: ShownStatus
    reason: str | None = None
    started_at: Time | None = None
    finished_at: Time | None = None
    abandoned_at: Time | None = None
    duration_ms: Annotated[
        float | None, Meta(description="The duration in milliseconds; null while it is open.")
    ] = None
    clock_shift_us: Annotated[
        int | None,
        Meta(
            description="The microseconds added to its recorded times to correct its process's "
            "clock; null if none."
        ),
    ] = None
    position: int | None = None
    masked: list[str] | None = None
    error: RowError | None = None


# Rows: `make fields` writes them.


class PlanRow(Row, tag=Kind.PLAN.value):
    """A plan without its steps."""

    kind: ClassVar[Kind] = Kind.PLAN

    root_plan_id: Id = ""
    plan_id: Id = ""
    parent_plan_id: Id | None = None
    tool_call_id: Id | None = None
    opened_by_step_id: Id | None = None
    depth: int | None = None
    title: str | None = None
    agent_name: str | None = None
    template: str | None = None
    template_version: str | None = None
    inferred: bool = False
    inferred_from: str | None = None
    user_request: str | None = None
    user_request_bytes: int | None = None
    user_request_truncated: bool = False
    summary: str | None = None
    summary_bytes: int | None = None
    summary_truncated: bool = False


class StepRow(Row, tag=Kind.STEP.value):
    """A step without its rounds."""

    kind: ClassVar[Kind] = Kind.STEP

    step_id: Id = ""
    plan_id: Id | None = None
    agent_name: str | None = None
    request: str | None = None
    request_bytes: int | None = None
    request_truncated: bool = False
    result: str | None = None
    result_bytes: int | None = None
    result_truncated: bool = False


class ThinkActRow(Row, tag=Kind.THINK_ACT.value):
    """A round without its tool calls."""

    kind: ClassVar[Kind] = Kind.THINK_ACT

    think_act_id: Id = ""
    step_id: Id | None = None
    requested_model: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    inferred: bool = False
    inferred_from: str | None = None
    thought: str | None = None
    thought_bytes: int | None = None
    thought_truncated: bool = False


class ToolCallRow(Row, tag=Kind.TOOL_CALL.value):
    """A tool call without its sub-plans."""

    kind: ClassVar[Kind] = Kind.TOOL_CALL

    tool_call_id: Id = ""
    step_id: Id | None = None
    think_act_id: Id | None = None
    parent_tool_call_id: Id | None = None
    continued_plan_id: Id | None = None
    provider_call_id: str | None = None
    name: str | None = None
    tool_type: str | None = None
    attempt: int | None = None
    forged_arguments: list[str] = []
    short_circuited_by: str | None = None
    still_running: bool | None = None
    agent_key: str | None = None
    agent_end_sequence: int | None = None
    inferred: bool = False
    inferred_from: str | None = None
    arguments: str | None = None
    arguments_bytes: int | None = None
    arguments_truncated: bool = False
    result: str | None = None
    result_bytes: int | None = None
    result_truncated: bool = False
    effective_arguments: str | None = None
    effective_arguments_bytes: int | None = None
    effective_arguments_truncated: bool = False
    state_changes: str | None = None
    state_changes_bytes: int | None = None
    state_changes_truncated: bool = False


# Rows: end.


class Opener(Struct, rename="camel", frozen=True):
    """The tool call that opened a plan, in short form."""

    tool_call_id: Id
    name: str | None
    arguments: str | None
    status: ShownStatus


class Continuation(Struct, rename="camel", frozen=True):
    """What the root plan of a run continues, if the run is a later part of a piece of work."""

    root_plan_id: Annotated[Id, Meta(description="The earlier run that is continued.")]
    inferred_from: Annotated[
        str | None, Meta(description="The evidence; null if the run named the id.")
    ]
    is_inside: Annotated[
        bool, Meta(description="Whether it began before the continued call or run had ended.")
    ]
    is_by_other_process: Annotated[
        bool, Meta(description="Whether another recorder recorded it, as far as it is known.")
    ]


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
    continues: Annotated[
        Continuation | UnsetType,
        Meta(
            description="Only at the root plan of a later part of a piece of work, which is shown "
            "below the call that it continues."
        ),
    ] = UNSET
    folded: Annotated[
        TreeTotals | UnsetType,
        Meta(
            description="Only at a later part whose other records are left out, because the parts "
            "before it have many: its totals. Read the part as a run of its own."
        ),
    ] = UNSET
    sub_plan_count: SubPlanCount = 0
    agent_executions: list[StepNode] = []
    failure_origins: Annotated[
        list[FailureOrigin] | UnsetType,
        Meta(
            description="Only at the root of the tree: the records at which failures began. "
            "Records that made the root fail come first, and of these the one that ended last."
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

    own: Own = ONE_CALL
    cumulative: Cumulative = ONE_CALL
    sub_plan_count: SubPlanCount = 0
    tool_calls: Annotated[
        list[ToolCallNode],
        Meta(description="The calls that this call made, as the call of a batch tool does."),
    ] = []
    sub_plans: list[PlanNode] = []


Node = PlanNode | StepNode | ThinkActNode | ToolCallNode


def unknown_plan(plan_id: UUID) -> PlanNode:
    """Return the node of a root plan that has no record."""
    return PlanNode(status=Status.UNKNOWN, root_plan_id=str(plan_id), plan_id=str(plan_id))


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


# --- Find the origins of failures. All functions are pure.
#
# One failure makes several records fail: a tool call, then its step, the plan of this step, and the
# tool call that started this plan. The origin is the failed record that no other failed record
# explains. An origin is *handled* if a record above it did not fail.

RecordKey = tuple[Kind, Hashable]
"""The kind and the id of a record."""


class FailedRecord(NamedTuple):
    """A failed record, and the records whose failure it explains."""

    key: RecordKey
    parents: tuple[RecordKey, ...]
    at: datetime | None
    """When the record ended."""


class Origin(NamedTuple):
    """The origin of a failure: a failed record without a failed record below it."""

    key: RecordKey
    depth: int | None
    """The number of agents above the one that failed: 0 if the root agent itself failed.

    None if the failure was handled."""

    @property
    def is_handled(self) -> bool:
        """Whether a record above the origin did not fail."""
        return self.depth is None


def explained_by(
    tool_call: Hashable | None,
    think_act: Hashable | None,
    step: Hashable | None,
    plan: Hashable | None,
) -> tuple[RecordKey, ...]:
    """Return the records above a failed record that may have failed because of it.

    Args:
        tool_call: The tool call that started the failed plan, or the batch that contains the failed
            tool call.
        think_act: The model call that chose the failed tool call. It may have succeeded, so the
            step is returned as well.
        step: The step that contains the failed record, or that handed over to the failed plan.
        plan: The plan of the failed step, or the parent of the failed plan. If a step handed over,
            this step may have succeeded, so the parent plan is returned as well.
    """
    if tool_call is not None:
        return ((Kind.TOOL_CALL, tool_call),)
    above = ((Kind.THINK_ACT, think_act), (Kind.STEP, step), (Kind.PLAN, plan))
    return tuple(key for key in above if key[1] is not None)


def failure_origins(failed: Iterable[FailedRecord], root: RecordKey) -> list[Origin]:
    """Return the origins of a run's failures, the most important first.

    Origins that made the run fail precede handled origins. Of those below one failed record, the
    one that ended last comes first: an agent that works on after a failure has handled it. Handled
    origins are in the order of their ends.

    Args:
        failed: All failed records of the run.
        root: The kind and id of the root plan.
    """
    by_key = {each.key: each for each in failed}
    below: dict[RecordKey, list[RecordKey]] = defaultdict(list)
    for each in by_key.values():
        for parent in each.parents:
            if parent in by_key:
                below[parent].append(each.key)
    depths: dict[RecordKey, int] = {}
    waiting = [(root, 0)] if root in by_key else []
    while waiting:  # the last child of the list is visited first, with all below it
        key, depth = waiting.pop()
        if key not in depths:
            depths[key] = depth
            children = sorted(below[key], key=lambda child: _end(by_key[child]))
            waiting += [(child, depth + (child[0] is Kind.PLAN)) for child in children]
    handled = sorted(by_key.keys() - depths.keys(), key=lambda key: _end(by_key[key]))
    return [Origin(key, depths.get(key)) for key in (*depths, *handled) if not below[key]]


def _end(record: FailedRecord) -> tuple[float, str]:
    return 0.0 if record.at is None else record.at.timestamp(), str(record.key[1])


# --- Build the tree of a run from rows, and compute its totals. All functions are pure.
#
# Building a tree always terminates. A node is returned in `unplaced` if its parent is unknown, or
# if its parents form a cycle.


class Payloads(StrEnum):
    """How much of each long text a tree contains."""

    NONE = "none"
    PREVIEW = "preview"
    """The first 2 kB."""
    EXCERPT = "excerpt"
    """The first 2 kB; of what tool calls returned and changed, most of a tree, 128 bytes."""
    FULL = "full"
    DIGEST = "digest"
    """The SHA-256, in hexadecimal."""
    COMPARED = "compared"
    """The result of `tracer.lineage.diff.digest_of`, for the comparison of two runs. Messages of
    errors are complete, and stack traces are omitted."""


@dataclass(frozen=True)
class Revision:
    """The state of a run at the time of reading."""

    root_plan_id: UUID
    number: int
    """The run's revision, which grows with every write to the run."""
    recorded_at: datetime
    """When the run was first stored. It distinguishes copies of the run in different databases,
    because `number` starts from 1 in each."""


UNSTORED = Revision(UUID(int=0), 0, datetime.min)
"""The state of a run that is not in the store."""


@dataclass
class TreeRows:
    """The nodes of a plan and of everything below it, without links between them.

    Each list is sorted by position and id.
    """

    plans: list[PlanNode] = field(default_factory=list)
    steps: list[StepNode] = field(default_factory=list)
    think_acts: list[ThinkActNode] = field(default_factory=list)
    tool_calls: list[ToolCallNode] = field(default_factory=list)
    opener: ToolCallNode | None = None
    """The tool call that opened the requested plan."""
    revision: Revision = UNSTORED
    """The state of the run that was read."""
    unread_spans: int = 0
    """The spans of the run that may be model calls of unknown cost (`Run.unread_spans`)."""


class LaterPart(NamedTuple):
    """A run of a piece of work that continues another one."""

    root_plan_id: str
    started_at: datetime
    continues_run_id: str
    tool_call_id: str | None
    inferred_from: str | None
    is_inside: bool
    recorder_id: str | None
    unread_spans: int
    totals: TreeTotals
    is_folded: bool = False
    """Whether only its root plan was read."""


def attach_parts(rows: TreeRows, parts: Collection[LaterPart], recorder_id: str | None) -> None:
    """Set the parents of the root plans of later parts, so that `build_tree` places them.

    A part is placed below the call that it continues. A part that continues no call is placed below
    the last step of the run that it continues; if that is folded, beside it.

    Args:
        rows: The rows of all parts. They are changed in place.
        parts: The parts, without the first run.
        recorder_id: The recorder of the first run.
    """
    recorders: dict[str, str | None] = {each.root_plan_id: each.recorder_id for each in parts}
    plans = {plan.plan_id: plan for plan in rows.plans}
    calls = {call.tool_call_id: call for call in rows.tool_calls}
    steps = {step.step_id: step for step in rows.steps}
    last_steps = {step.plan_id: step for step in rows.steps}  # they are sorted by position
    for position, part in enumerate(sorted(parts, key=lambda each: each.started_at)):
        plan = plans.get(part.root_plan_id)
        if plan is None:  # its first projection is pending
            continue
        call = calls.get(part.tool_call_id or "")
        step = steps.get(call.step_id or "") if call else last_steps.get(part.continues_run_id)
        beside = plans.get(part.continues_run_id)
        if step is None and beside is not None and beside.folded is not UNSET:
            call = calls.get(beside.tool_call_id or "")
            step = steps.get(beside.opened_by_step_id or (call and call.step_id) or "")
        by_other = {part.recorder_id, recorders.get(part.continues_run_id, recorder_id)} - {None}
        plan.tool_call_id = call.tool_call_id if call is not None else None
        plan.opened_by_step_id = step.step_id if step is not None and call is None else None
        plan.parent_plan_id = step.plan_id if step is not None else None
        plan.position = position
        plan.continues = Continuation(
            part.continues_run_id, part.inferred_from, part.is_inside, len(by_other) > 1
        )
        if part.is_folded:
            plan.folded = part.totals
    rows.plans.sort(key=lambda plan: (plan.position or 0) if plan.continues else -1)


def build_tree(rows: TreeRows, plan_id: str, depth: int | None = None) -> PlanNode:
    """Return a plan's node with everything below it.

    Args:
        rows: The nodes that a store has read. They are changed in place.
        plan_id: The id of the plan, as text. The plan must be in `rows.plans`.
        depth: The number of plan levels to return: 1 for only this plan, None for all levels.
            Totals and `sub_plan_count` include omitted levels.
    """
    forest = _Forest(rows)
    top = forest.plans[plan_id]
    top.revision = rows.revision.number
    forest.detach(top)
    placed = _descendants([top])
    unplaced: list[Node] = []
    if top.plan_id == top.root_plan_id:
        unplaced = top.unplaced = forest.unplaced_roots(placed)
    unplaced_nodes = _descendants(unplaced)
    origins = _origins(top, [*placed, *unplaced_nodes])
    origin_keys = {(origin.kind, origin.id) for origin in origins}
    _add_totals(unplaced_nodes, origin_keys)
    _add_totals(placed, origin_keys)
    if unplaced:
        top.cumulative = _sum(top.cumulative, [node.cumulative for node in unplaced])
    if rows.unread_spans and top.plan_id == top.root_plan_id:
        unread = TreeTotals(unpriced_calls=rows.unread_spans)
        top.own, top.cumulative = _sum(top.own, [unread]), _sum(top.cumulative, [unread])
    top.failure_origins = origins
    if depth is not None:
        _prune(top, depth)
    return top


def _origins(top: PlanNode, nodes: Collection[Node]) -> list[FailureOrigin]:
    failed = [
        FailedRecord((node.kind, _id_of(node)), _explained_by(node), node.finished_at)
        for node in nodes
        if node.status == "failed"
    ]
    if not failed:
        return []
    # The status of a whole piece of work is that of its last part.
    later = [
        node
        for node in nodes
        if type(node) is PlanNode and node.continues and not node.continues.is_inside
    ]
    root = max(later, key=lambda plan: plan.position or 0, default=top)
    return [
        FailureOrigin(origin.key[0].value, str(origin.key[1]), origin.is_handled)
        for origin in failure_origins(failed, (Kind.PLAN, root.plan_id))
    ]


def _id_of(node: Node) -> str:
    if type(node) is ToolCallNode:
        return node.tool_call_id
    if type(node) is ThinkActNode:
        return node.think_act_id
    return node.step_id if type(node) is StepNode else node.plan_id


def _explained_by(node: Node) -> tuple[RecordKey, ...]:
    if type(node) is ToolCallNode:
        return explained_by(node.parent_tool_call_id, node.think_act_id, node.step_id, None)
    if type(node) is ThinkActNode:
        return explained_by(None, None, node.step_id, None)
    if type(node) is StepNode:
        return explained_by(None, None, None, node.plan_id)
    return explained_by(node.tool_call_id, None, node.opened_by_step_id, node.parent_plan_id)


class _Forest:
    """All nodes, each linked to its parent if the parent is known."""

    def __init__(self, rows: TreeRows) -> None:
        self.plans = {node.plan_id: node for node in rows.plans}
        self.steps = {node.step_id: node for node in rows.steps}
        self.think_acts = {node.think_act_id: node for node in rows.think_acts}
        self.tool_calls = {node.tool_call_id: node for node in rows.tool_calls}
        self.roots: list[Node] = []
        all_nodes: Iterable[Node] = chain[Node](
            rows.steps, rows.think_acts, rows.tool_calls, rows.plans
        )
        for node in all_nodes:
            parent = self._parent_of(node)
            if parent is None:
                self.roots.append(node)
            else:
                _siblings(node, parent).append(node)
        for plan in rows.plans:
            self._set_opener(plan, rows.opener)

    def _parent_of(self, node: Node) -> Node | None:
        """Return the parent of a node; None if it is unknown."""
        # `or ""` looks up a missing id, which matches nothing. `type(…) is` takes a third of the
        # time of `isinstance`.
        if type(node) is ToolCallNode:
            return (
                self.tool_calls.get(node.parent_tool_call_id or "")
                or self.think_acts.get(node.think_act_id or "")
                or self.steps.get(node.step_id or "")
            )
        if type(node) is ThinkActNode:
            return self.steps.get(node.step_id or "")
        if type(node) is StepNode:
            return self.plans.get(node.plan_id or "")
        opener = self.tool_calls.get(node.tool_call_id or "")
        return opener or self.steps.get(node.opened_by_step_id or "")

    def _set_opener(self, plan: PlanNode, opener: ToolCallNode | None) -> None:
        if plan.tool_call_id is None:
            return
        call = self.tool_calls.get(plan.tool_call_id)
        if call is None and opener is not None and opener.tool_call_id == plan.tool_call_id:
            call = opener
        if call is not None:
            plan.parent_act_tool_call = Opener(
                call.tool_call_id, call.name, call.arguments, call.status
            )

    def unplaced_roots(self, placed: list[Node]) -> list[Node]:
        """Return the roots of all trees that contain none of the placed nodes."""
        node_maps: list[Mapping[str, Node]]
        node_maps = [self.plans, self.steps, self.think_acts, self.tool_calls]
        if len(placed) == sum(map(len, node_maps)):
            return []
        seen = set(map(id, placed))
        unplaced = [node for node in self.roots if id(node) not in seen]
        seen.update(map(id, _descendants(unplaced)))
        for node in chain.from_iterable(each.values() for each in node_maps):
            if id(node) not in seen:
                root = self._break_cycle(node)
                unplaced.append(root)
                seen.update(map(id, _descendants([root])))
        return unplaced

    def _break_cycle(self, node: Node) -> Node:
        """Detach one node of the cycle of parents that `node` leads to, and return it."""
        visited: set[int] = set()
        while id(node) not in visited:
            visited.add(id(node))
            parent = self._parent_of(node)
            assert parent is not None  # otherwise it would descend from a root, and be seen already
            node = parent
        self.detach(node)
        return node

    def detach(self, node: Node) -> None:
        """Remove a node from its parent, if it has one."""
        parent = self._parent_of(node)
        if parent is not None:
            siblings = _siblings(node, parent)
            siblings[:] = [each for each in siblings if each is not node]


_CHILD_LISTS: dict[type[Node], str] = {
    PlanNode: "sub_plans",
    StepNode: "agent_executions",
    ThinkActNode: "think_acts",
    ToolCallNode: "tool_calls",
}


def _siblings(node: Node, parent: Node) -> list[Node]:
    """Return the parent's list of children to which `node` belongs."""
    return cast(list[Node], getattr(parent, _CHILD_LISTS[type(node)]))


def _descendants(roots: Iterable[Node]) -> list[Node]:
    """Return nodes and all their descendants, parents before children."""
    walked = list(roots)
    for node in walked:  # the list grows during the loop
        if type(node) is ToolCallNode:
            walked += node.tool_calls
            walked += node.sub_plans
        elif type(node) is ThinkActNode:
            walked += node.tool_calls
        elif type(node) is StepNode:
            walked += node.think_acts
            walked += node.tool_calls
            walked += node.sub_plans
        else:
            walked += node.agent_executions
    return walked


def _within_plan(node: Node) -> Sequence[Node]:
    """Return the children of a node that belong to the same plan."""
    if type(node) is StepNode:
        return [*node.think_acts, *node.tool_calls]
    return node.agent_executions if type(node) is PlanNode else node.tool_calls


def _add_totals(walked: list[Node], origin_keys: Collection[tuple[str, str]]) -> None:
    """Set `own`, `cumulative` and `sub_plan_count` of nodes.

    `own` excludes sub-plans, `cumulative` includes them. To save memory, nodes share a totals
    object where the totals are equal by definition. Examples are `own` and `cumulative` of a node
    without sub-plans.

    Args:
        walked: The nodes, parents before children.
        origin_keys: The kinds and ids of the origins of failures.
    """
    # By id of a node: the number of sub-plans that it and its descendants in its plan opened.
    opened: dict[int, int] = {}
    for node in reversed(walked):
        below: Sequence[Node]
        sub_plans: Sequence[PlanNode] = ()
        if type(node) is ToolCallNode:
            is_origin = node.status == "failed" and (node.kind, node.tool_call_id) in origin_keys
            itself = _FAILED_CALL if is_origin else ONE_CALL
            below, sub_plans = node.tool_calls, node.sub_plans
            if not below and not sub_plans:  # most nodes
                node.own = node.cumulative = itself
                continue
            node.sub_plan_count = len(sub_plans)
        elif type(node) is ThinkActNode:
            itself, below = _round_totals(node, origin_keys), node.tool_calls
        elif type(node) is StepNode:
            itself = (
                _FAILURE if origin_keys and (node.kind, node.step_id) in origin_keys else NO_TOTALS
            )
            below, sub_plans = _within_plan(node), node.sub_plans
            node.sub_plan_count = len(sub_plans)
        else:
            itself = (
                _FAILURE if origin_keys and (node.kind, node.plan_id) in origin_keys else NO_TOTALS
            )
            if node.folded is not UNSET:
                itself = _sum(itself, [node.folded])
            below = node.agent_executions
        node.own = node.cumulative = _sum(itself, [child.own for child in below])
        deeper = [opened[id(child)] for child in below if id(child) in opened]
        if sub_plans or deeper:
            parts = [child.cumulative for child in (*below, *sub_plans)]
            node.cumulative = _sum(itself, parts)
            if type(node) is PlanNode:
                node.sub_plan_count = sum(deeper)
            else:
                opened[id(node)] = len(sub_plans) + sum(deeper)


def _round_totals(node: ThinkActNode, origin_keys: Collection[tuple[str, str]]) -> TreeTotals:
    """Return the totals of a model call, without those of its tool calls."""
    used = node.input_tokens, node.output_tokens
    is_cost_unknown = is_unpriced(node.status, used, node.cost_usd)
    return TreeTotals(
        input_tokens=node.input_tokens or 0,
        output_tokens=node.output_tokens or 0,
        cost_usd=None if is_cost_unknown else node.cost_usd or 0,
        unpriced_calls=int(is_cost_unknown),
        failures=1
        if node.status == "failed" and (node.kind, node.think_act_id) in origin_keys
        else 0,
    )


_FAILED_CALL = TreeTotals(tool_calls=1, failures=1)
_FAILURE = TreeTotals(failures=1)


def _sum(itself: TreeTotals, parts: list[TreeTotals]) -> TreeTotals:
    """Return the sum of totals.

    The parts are added in order, because sums of floats depend on the order.
    """
    input_tokens = itself.input_tokens
    output_tokens = itself.output_tokens
    cost_usd = itself.cost_usd or 0
    unpriced_calls = itself.unpriced_calls
    tool_calls = itself.tool_calls
    failures = itself.failures
    for part in parts:
        if part is ONE_CALL:  # most parts
            tool_calls += 1
            continue
        input_tokens += part.input_tokens
        output_tokens += part.output_tokens
        cost_usd += part.cost_usd or 0
        unpriced_calls += part.unpriced_calls
        tool_calls += part.tool_calls
        failures += part.failures
    known_cost = known_total(cost_usd, unpriced_calls)
    return TreeTotals(input_tokens, output_tokens, known_cost, unpriced_calls, tool_calls, failures)


def _prune(top: Node, depth: int) -> None:
    """Remove the sub-plans below the first `depth` levels of plans."""
    stack = [(top, 1)]
    while stack:
        node, level = stack.pop()
        stack += [(child, level) for child in _within_plan(node)]
        if isinstance(node, (ToolCallNode, StepNode)):
            if level >= depth:
                node.sub_plans = []
            stack += [(sub_plan, level + 1) for sub_plan in node.sub_plans]
