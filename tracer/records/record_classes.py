"""Records: what Tracer keeps of a run, one class a kind.

These classes are the one definition of each field. The tables
(`tracer.storage.postgres.schema.record_tables`) and the API's read schemas (`api.schemas`) derive
from them. A record is a value: it does no I/O and reads no clock. Records refer to each other by id
only; children know their parents, never the reverse.

Strings are in stored form (`tracer.text`). Times are aware UTC datetimes of the recording
process; `recorded_at` alone is the server's.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import Enum, StrEnum, auto
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, Field

from tracer.records.ids import DEFAULT_PROJECT_ID
from tracer.records.status import Status, shown_status


class Width(Enum):
    """The size of an integer in the database: 32 bits if its field states none."""

    BITS_64 = auto()


Int64 = Annotated[int, Width.BITS_64]


class Merge(Enum):
    """How two versions of a field merge. A field without a rule is not filled by events."""

    GREATEST = "greatest"
    """The greater value stays. Starts are recorded once, so their values seldom differ."""
    LEAST = "least"
    """The lesser value stays; null is replaced."""
    ENDING = "ending"
    """The endings form one tuple, compared from left to right; the greater one stays as a whole."""
    LATEST = "latest"
    """A second tuple, for the latest attempt."""
    LATE = "late"
    """A third tuple, for what happened after the ending."""
    UNION = "union"
    """The items of both lists, sorted, each once."""


class Shown(Enum):
    """Marks a text that can be too long for lists and trees."""

    CUT = auto()
    """They show its first 2 kB, its size, and whether it was cut."""
    ALONE = auto()
    """Only the record by itself shows it."""


class Kind(StrEnum):
    """The kinds of record, by the names that the API and the exports give them."""

    RUN = "run"
    PLAN = "plan"
    STEP = "step"
    THINK_ACT = "thinkAct"
    TOOL_CALL = "toolCall"


class _Fields(BaseModel, use_attribute_docstrings=True, defer_build=True):
    pass


class Record(_Fields):
    """The fields of every kind of record."""

    project_id: int = DEFAULT_PROJECT_ID
    """The project that the record belongs to."""
    root_plan_id: UUID
    """The run: the id of its root plan."""
    status: Annotated[Status, Merge.ENDING] = Status.UNKNOWN
    """How far it has come. `unknown` is a placeholder that another record named."""
    reason: Annotated[str | None, Merge.ENDING] = None
    """Which kind of ending it was, such as `timed_out` or `round_limit`."""
    started_at: Annotated[datetime | None, Merge.LEAST] = None
    """When it began, by the recording process's clock."""
    finished_at: Annotated[datetime | None, Merge.ENDING] = None
    """When it ended, by the recording process's clock."""
    abandoned_at: datetime | None = None
    """When its recorder's lease ran out while it was open."""
    recorder_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The youngest recorder that wrote it."""
    recorded_at: datetime | None = None
    """When the server first stored it."""
    revision: Int64 = 0
    """The run's revision at the write that changed this record last."""
    masked: Annotated[list[str], Merge.UNION] = Field(default_factory=list)
    """Where secrets were masked, or payloads not kept: `arguments:/password`, sorted."""

    @property
    def shown_status(self) -> str:
        """The status as the API shows it: `abandoned` for an open record whose lease ran out."""
        return shown_status(self.status, self.abandoned_at is not None)


class Totals(_Fields):
    """Sums over some part of a run."""

    input_tokens: Int64 = 0
    """Tokens that models were given."""
    output_tokens: Int64 = 0
    """Tokens that models answered with."""
    cost_usd: Decimal = Decimal(0)
    """What the models cost, in US dollars: the sum of the costs that are known."""
    tool_calls: Int64 = 0
    """Tool calls, items of batches included."""
    failures: Int64 = 0
    """Think-acts and tool calls that ended `failed`."""


class Run(Record, Totals):
    """One root plan and everything below it, as a row of the run list."""

    title: str | None = None
    """The root plan's title: the given one, or else the first line of the question."""
    agent_name: str | None = None
    """The agent that the root plan was given to."""
    session_id: Annotated[str | None, Merge.GREATEST] = None
    """The conversation that the run belongs to."""
    subject: Annotated[str | None, Merge.GREATEST] = None
    """Whom the run is about: the person whose data it holds."""
    tags: Annotated[list[str], Merge.UNION] = Field(default_factory=list)
    """Labels given at the start, sorted."""
    traceparent: Annotated[str | None, Merge.GREATEST] = None
    """The W3C trace context that the request came with."""
    cancel_requested_at: datetime | None = None
    """When somebody asked for the run to be cancelled."""
    run_metadata: Annotated[str | None, Merge.GREATEST] = None
    """Metadata that the program gave it, as the text of a JSON object."""


class Outcome(_Fields):
    """What went wrong, for the kinds of record that can fail."""

    error_type: Annotated[str | None, Merge.ENDING] = None
    """The error's class or code."""
    error_message: Annotated[str | None, Merge.ENDING] = None
    """What it says."""
    error_stack: Annotated[str | None, Merge.ENDING] = None
    """Its stack, where there is one."""


class Inferred(_Fields):
    """Whether a record's place was recorded or reconstructed."""

    inferred: bool = False
    """Whether what it hangs under was reconstructed rather than recorded."""
    inferred_from: str | None = None
    """The evidence that it was reconstructed from."""


class PlanExecutionRecord(Record, Outcome, Inferred):
    """What an agent set out to do: the root plan of a run, or a sub-plan."""

    plan_id: UUID
    """The plan's own id; that of a root plan is the run's."""
    parent_plan_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The plan whose tool call or step opened this one; null for the root plan."""
    tool_call_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The tool call that opened this sub-plan."""
    opened_by_step_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The step that opened this sub-plan without a tool call: a hand-off."""
    position: Annotated[int | None, Merge.GREATEST] = None
    """The place among the sub-plans of one opener, from 0."""
    depth: Annotated[int | None, Merge.GREATEST] = None
    """How many sub-plans lie above it: 0 for the root plan."""
    title: Annotated[str | None, Merge.GREATEST] = None
    """Its name in lists: the given title, or else the first line of the request."""
    user_request: Annotated[str | None, Merge.GREATEST, Shown.CUT] = None
    """What was asked, in the words that were used."""
    agent_name: Annotated[str | None, Merge.GREATEST] = None
    """The agent that the plan was given to."""
    follows_provider_call_id: Annotated[str | None, Merge.GREATEST] = None
    """The provider's id of the call whose end it follows; that call is in another run."""
    template: Annotated[str | None, Merge.GREATEST] = None
    """The plan template that it was made from."""
    template_version: Annotated[str | None, Merge.GREATEST] = None
    """Which version of the template."""
    summary: Annotated[str | None, Merge.ENDING, Shown.CUT] = None
    """What came of it."""


class AgentExecutionRecord(Record, Outcome):
    """A step: one item of a plan, carried out by one agent."""

    step_id: UUID
    """The step's own id."""
    plan_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The plan that it is a step of; null while only its id is known."""
    position: Annotated[int | None, Merge.GREATEST] = None
    """The place among the plan's steps, from 0."""
    agent_name: Annotated[str | None, Merge.GREATEST] = None
    """The agent that carries it out."""
    request: Annotated[str | None, Merge.GREATEST, Shown.CUT] = None
    """What the agent was asked to do."""
    result: Annotated[str | None, Merge.ENDING, Shown.CUT] = None
    """The agent's final answer."""


class ThinkActRecord(Record, Outcome):
    """One round of an agent: the model thinks, then chooses tools."""

    think_act_id: UUID
    """The round's own id."""
    step_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The step that it is a round of; null while only its id is known."""
    position: Annotated[int | None, Merge.GREATEST] = None
    """The round's number within the step, from 0."""
    thought: Annotated[str | None, Merge.ENDING, Shown.CUT] = None
    """The text that the model answered with."""
    requested_model: Annotated[str | None, Merge.GREATEST] = None
    """The model asked, as it was asked for."""
    model: Annotated[str | None, Merge.ENDING] = None
    """The model that answered, as the provider names it."""
    messages: Annotated[str | None, Merge.GREATEST, Shown.ALONE] = None
    """The messages that the model was given, as the text of a JSON array."""
    input_tokens: Annotated[Int64 | None, Merge.ENDING] = None
    """Tokens that the model was given."""
    output_tokens: Annotated[Int64 | None, Merge.ENDING] = None
    """Tokens that it answered with."""
    cost_usd: Annotated[Decimal | None, Merge.ENDING] = None
    """The cost reported, or else computed from the price list, in US dollars."""
    provider: Annotated[str | None, Merge.GREATEST, Shown.ALONE] = None
    """The provider of the model, such as `openai`."""
    parameters: Annotated[str | None, Merge.GREATEST, Shown.ALONE] = None
    """The parameters of the request, such as `temperature`, as the text of a JSON object."""
    offered_tools: Annotated[str | None, Merge.GREATEST, Shown.ALONE] = None
    """The tools that it could choose, as the text of a JSON array."""
    offered_tools_from: Annotated[UUID | None, Merge.GREATEST, Shown.ALONE] = None
    """The round of the run that holds the offered tools, if they are the same."""
    node: Annotated[str | None, Merge.GREATEST, Shown.ALONE] = None
    """The node of the agent's graph that asked the model."""
    finish_reasons: Annotated[list[str], Merge.UNION, Shown.ALONE] = Field(default_factory=list)
    """Why the model stopped, such as `stop` or `tool_calls`, sorted."""
    cache_read_tokens: Annotated[Int64 | None, Merge.ENDING, Shown.ALONE] = None
    """The input tokens that the provider read from its cache."""
    cache_written_tokens: Annotated[Int64 | None, Merge.ENDING, Shown.ALONE] = None
    """The input tokens that the provider wrote to its cache."""
    reasoning_tokens: Annotated[Int64 | None, Merge.ENDING, Shown.ALONE] = None
    """The output tokens that the model spent on reasoning."""
    first_token_at: Annotated[datetime | None, Merge.ENDING, Shown.ALONE] = None
    """When the first token of the answer arrived."""


class ActToolInfo(Record, Outcome, Inferred):
    """One tool call: one request to run one tool."""

    tool_call_id: UUID
    """The call's own id."""
    step_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The step that made it; null while only its id is known."""
    think_act_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The round whose model chose it; null for calls made outside any."""
    parent_tool_call_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The batch call that this call is an item of."""
    continued_plan_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The sub-plan that the call continued after another call had opened it."""
    position: Annotated[int | None, Merge.GREATEST] = None
    """The place in the round, or in the batch, from 0."""
    provider_call_id: Annotated[str | None, Merge.GREATEST] = None
    """The id that the model's provider gave; repeats, may be empty."""
    name: Annotated[str | None, Merge.GREATEST] = None
    """The tool's name as the model called it."""
    tool_type: Annotated[str | None, Merge.GREATEST] = None
    """The kind of tool, such as `STATELESS` or `SUBPLAN`."""
    arguments: Annotated[str | None, Merge.GREATEST, Shown.CUT] = None
    """The arguments as the text that they were, usually JSON."""
    result: Annotated[str | None, Merge.ENDING, Shown.CUT] = None
    """The result as the text that it was, usually JSON."""
    attempt: Annotated[int | None, Merge.LATEST] = None
    """How many times it was tried, the latest included, from 1."""
    effective_arguments: Annotated[str | None, Merge.LATEST, Shown.CUT] = None
    """What the latest attempt was called with, where hooks changed the arguments."""
    forged_arguments: Annotated[list[str], Merge.UNION] = Field(default_factory=list)
    """The hidden parameters that somebody but the runtime tried to give: their names, sorted."""
    short_circuited_by: Annotated[str | None, Merge.ENDING] = None
    """The hook that answered in the tool's place."""
    state_changes: Annotated[str | None, Merge.ENDING, Shown.CUT] = None
    """What it changed in the session's state, as the text of a JSON array."""
    still_running: Annotated[bool | None, Merge.ENDING] = None
    """True where it was given up on and its tool went on regardless; else null."""
    late_finished_at: Annotated[datetime | None, Merge.LATE] = None
    """When a call that was recorded as timed out ended after all."""
    late_status: Annotated[Status | None, Merge.LATE] = None
    """How it ended then."""
    late_result: Annotated[str | None, Merge.LATE, Shown.CUT] = None
    """What it returned then, or the error that it raised."""


RECORDS: dict[Kind, type[Any]] = {
    Kind.PLAN: PlanExecutionRecord,
    Kind.STEP: AgentExecutionRecord,
    Kind.THINK_ACT: ThinkActRecord,
    Kind.TOOL_CALL: ActToolInfo,
}
"""The class of each kind of record below the run."""

ALL_RECORDS: dict[Kind, type[Any]] = {Kind.RUN: Run, **RECORDS}
"""The same, with that of the run."""

TEXTS: dict[Kind, tuple[str, ...]] = {
    kind: tuple(
        name
        for name, field in record.model_fields.items()
        if field.annotation in (str | None, list[str]) and name != "masked"
    )
    for kind, record in ALL_RECORDS.items()
}
"""The fields of each kind that hold text, or lists of text."""

FROM_ROOT_PLAN = (
    "title",
    "agent_name",
    "status",
    "reason",
    "started_at",
    "finished_at",
    "recorder_id",
)
"""The fields that a run copies from its root plan."""
