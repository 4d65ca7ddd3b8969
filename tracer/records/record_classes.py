"""The records of a run, one class for each kind.

Each field is defined only here. The database tables
(`tracer.storage.postgres.tables`) and the API's schemas (`api.schemas`) are derived
from these classes. Records refer to each other by id. A child contains the ids of its parents; a
parent does not contain its children.

Strings are in stored form (`tracer.text`). Times are aware datetimes in UTC, by the clock of the
recording process. Only `recorded_at` is a time of the server.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import Enum, StrEnum, auto
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, Field

from tracer.records.ids import DEFAULT_PROJECT_ID
from tracer.records.prices import known_total
from tracer.records.status import Status, shown_status


class Width(Enum):
    """The size of an integer column. Without this annotation, the column has 32 bits."""

    BITS_64 = auto()


Int64 = Annotated[int, Width.BITS_64]


class Merge(Enum):
    """How two versions of a field are merged. Events cannot set a field without a merge rule."""

    GREATEST = "greatest"
    """The greater value is stored."""
    LEAST = "least"
    """The lesser value is stored. A value replaces null."""
    ENDING = "ending"
    """All `ENDING` fields of a record form one tuple, which is compared from left to right. The
    greater tuple is stored as a whole."""
    LATEST = "latest"
    """As `ENDING`, for the fields of a tool call's latest attempt."""
    UNION = "union"
    """The items of both lists are stored, sorted and without duplicates."""


class Shown(Enum):
    """How lists and trees show a text that may be long."""

    CUT = auto()
    """Lists and trees show the first 2 kB of the text, its size, and whether it was cut."""
    ALONE = auto()
    """Lists and trees omit the field. The API returns it only for a single record."""


class Kind(StrEnum):
    """The kinds of record, with their names in the API and in exports."""

    RUN = "run"
    PLAN = "plan"
    STEP = "step"
    THINK_ACT = "thinkAct"
    TOOL_CALL = "toolCall"


RecordReference = tuple[Kind, UUID]
"""The kind and the id of a record."""


class _Fields(BaseModel, use_attribute_docstrings=True, defer_build=True):
    pass


class Record(_Fields):
    """The fields that all kinds of record have."""

    project_id: int = DEFAULT_PROJECT_ID
    """The project that the record belongs to."""
    root_plan_id: UUID
    """The id of the run, which is the id of its root plan."""
    status: Annotated[Status, Merge.ENDING] = Status.UNKNOWN
    """The status. `unknown` marks a placeholder that another record referenced."""
    reason: Annotated[str | None, Merge.ENDING] = None
    """The kind of ending, such as `timed_out` or `round_limit`."""
    started_at: Annotated[datetime | None, Merge.LEAST] = None
    """The start time, by the recording process's clock."""
    finished_at: Annotated[datetime | None, Merge.ENDING] = None
    """The end time, by the recording process's clock."""
    abandoned_at: datetime | None = None
    """When its recorder's lease expired while the record was open."""
    recorder_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The recorder that wrote it; if there were several, the one with the greatest id."""
    recorded_at: datetime | None = None
    """When the server stored the first version of it."""
    revision: Int64 = 0
    """The run's revision at the write that changed this record last."""
    masked: Annotated[list[str], Merge.UNION] = Field(default_factory=list)
    """Pointers to masked or omitted values, such as `arguments:/password`, sorted."""

    @property
    def shown_status(self) -> str:
        """The status as the API shows it.

        It is `abandoned` for an unfinished record whose recorder's lease has expired.
        """
        return shown_status(self.status, self.abandoned_at is not None)


class Totals(_Fields):
    """Sums over a run or a part of it."""

    input_tokens: Int64 = 0
    """The input tokens of all models."""
    output_tokens: Int64 = 0
    """The output tokens of all models."""
    cost_usd: Decimal = Decimal(0)
    """The sum of the known costs of model calls in US dollars."""
    unpriced_calls: Int64 = 0
    """The number of model calls that succeeded or used tokens, but have an unknown cost."""
    tool_calls: Int64 = 0
    """The number of tool calls, including the items of batches."""
    failed_calls: Int64 = 0
    """The number of think-acts and tool calls that failed."""

    @property
    def known_cost(self) -> Decimal | None:
        """The sum of the known costs; None if this sum is zero and some costs are unknown."""
        return known_total(self.cost_usd, self.unpriced_calls)


class Run(Record, Totals):
    """One root plan and everything below it, as a row of the run list."""

    title: str | None = None
    """The title of the root plan; if none was recorded, the first line of the request."""
    agent_name: str | None = None
    """The agent that runs the root plan."""
    session_id: Annotated[str | None, Merge.GREATEST] = None
    """The conversation that the run belongs to."""
    subject: Annotated[str | None, Merge.GREATEST] = None
    """The person whose data the run contains."""
    tags: Annotated[list[str], Merge.UNION] = Field(default_factory=list)
    """The labels of the run, sorted."""
    traceparent: Annotated[str | None, Merge.GREATEST] = None
    """The W3C trace context of the request that started the run."""
    cancel_requested_at: datetime | None = None
    """When cancellation of the run was requested."""
    run_metadata: Annotated[str | None, Merge.GREATEST] = None
    """The metadata of the run, as the text of a JSON object."""
    service_name: Annotated[str | None, Merge.GREATEST] = None
    """The service that executed the run: the resource attribute `service.name`."""
    service_version: Annotated[str | None, Merge.GREATEST] = None
    """The version of the service: `service.version`."""
    deployment_environment: Annotated[str | None, Merge.GREATEST] = None
    """The environment of the service, such as `production`: `deployment.environment.name`."""
    unread_spans: Int64 = 0
    """The number of spans with token counts that no rule could read. Their costs are unknown."""
    unread_scopes: list[str] = Field(default_factory=list)
    """The instrumentation scopes of these spans, sorted; at most ten."""
    follows_calls: Annotated[list[UUID], Merge.UNION] = Field(default_factory=list)
    """The tool calls of other runs whose work the run continues, sorted."""
    follows_runs: Annotated[list[UUID], Merge.UNION] = Field(default_factory=list)
    """The runs whose work the run continues, sorted."""
    follows_keys: Annotated[list[str], Merge.UNION] = Field(default_factory=list)
    """The provider ids of the tool calls whose work the run continues, or the ids of their agents,
    sorted; at most a hundred if they come from spans."""
    work_keys: Annotated[list[str], Merge.UNION] = Field(default_factory=list)
    """Ids that the emitter gave to the whole piece of work, sorted. Runs that share one are parts
    of the same work."""
    continues_run_id: UUID | None = None
    """The earlier run whose work the run continues; null if it begins a piece of work."""
    head_id: UUID | None = None
    """The first run of the piece of work; null if this is the run itself."""
    is_inside: bool = False
    """Whether the run began before the call or run that it continues had ended."""
    whole_status: str | None = None
    """The status of the whole piece of work, as shown; null if no other run continues the run."""
    beginning_deleted: bool = False
    """Whether the run that it continued was deleted, so that it is the first one of the rest."""
    prompt_sequence: Int64 | None = None
    """The emitter's number of the event that started the run, among the events of its session; null
    if the text of the run's prompt is known."""
    prompt_number: Int64 | None = None
    """The emitter's number of the run's prompt, among the prompts of its session and process."""
    refused_spans: Int64 = 0
    """The number of spans and log records that were rejected with `run_too_large`. An item that was
    sent again counts again."""


class Outcome(_Fields):
    """The error of a record."""

    error_type: Annotated[str | None, Merge.ENDING] = None
    """The class or code of the error."""
    error_message: Annotated[str | None, Merge.ENDING] = None
    """The message of the error."""
    error_stack: Annotated[str | None, Merge.ENDING] = None
    """The stack trace of the error; null if none was recorded."""


class Shifted(_Fields):
    """Whether the times of the record were corrected."""

    clock_shift_us: Int64 | None = None
    """The microseconds added to its recorded times to correct its process's clock; null if none."""


class Inferred(_Fields):
    """Whether the record and the link to its parent were recorded or inferred."""

    inferred: bool = False
    """True if it, or the link to its parent, was reconstructed rather than recorded."""
    inferred_from: str | None = None
    """The evidence for the reconstruction."""


class PlanExecutionRecord(Record, Outcome, Shifted, Inferred):
    """An agent's task: the root plan of a run, or a sub-plan."""

    plan_id: UUID
    """The plan's id. The id of a root plan is also the id of the run."""
    parent_plan_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The plan whose tool call or step opened this one; null for the root plan."""
    tool_call_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The tool call that opened this sub-plan."""
    opened_by_step_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The step that opened this sub-plan without a tool call: a hand-off."""
    position: Annotated[int | None, Merge.GREATEST] = None
    """The position among the sub-plans of one tool call or step, from 0."""
    depth: Annotated[int | None, Merge.GREATEST] = None
    """The number of plans above this one: 0 for the root plan."""
    title: Annotated[str | None, Merge.GREATEST] = None
    """The title; if none was recorded, the first line of the request."""
    user_request: Annotated[str | None, Merge.GREATEST, Shown.CUT] = None
    """The request, word for word."""
    agent_name: Annotated[str | None, Merge.GREATEST] = None
    """The agent that runs the plan."""
    template: Annotated[str | None, Merge.GREATEST] = None
    """The plan template that the plan was created from."""
    template_version: Annotated[str | None, Merge.GREATEST] = None
    """The version of the template."""
    summary: Annotated[str | None, Merge.ENDING, Shown.CUT] = None
    """The outcome of the plan, as text."""


class AgentExecutionRecord(Record, Outcome, Shifted):
    """A step: one item of a plan, executed by one agent."""

    step_id: UUID
    """The step's id."""
    plan_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The plan of the step; null if only the step's id is known."""
    position: Annotated[int | None, Merge.GREATEST] = None
    """The position among the plan's steps, from 0."""
    agent_name: Annotated[str | None, Merge.GREATEST] = None
    """The agent that executes the step."""
    request: Annotated[str | None, Merge.GREATEST, Shown.CUT] = None
    """The request to the agent."""
    result: Annotated[str | None, Merge.ENDING, Shown.CUT] = None
    """The agent's final answer."""


class ThinkActRecord(Record, Outcome, Shifted, Inferred):
    """A think-act: one model request and the tool calls that it requests."""

    think_act_id: UUID
    """The think-act's id."""
    step_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The step of the think-act; null if only the think-act's id is known."""
    position: Annotated[int | None, Merge.GREATEST] = None
    """The number of the think-act within the step, from 0."""
    thought: Annotated[str | None, Merge.ENDING, Shown.CUT] = None
    """The text of the model's answer."""
    requested_model: Annotated[str | None, Merge.GREATEST] = None
    """The name of the requested model."""
    model: Annotated[str | None, Merge.ENDING] = None
    """The name of the model that answered, as the provider reports it."""
    messages: Annotated[str | None, Merge.GREATEST, Shown.ALONE] = None
    """The messages to the model, as the text of a JSON array."""
    input_tokens: Annotated[Int64 | None, Merge.ENDING] = None
    """The number of input tokens."""
    output_tokens: Annotated[Int64 | None, Merge.ENDING] = None
    """The number of output tokens."""
    cost_usd: Annotated[Decimal | None, Merge.ENDING] = None
    """The cost in US dollars: by the project's prices, else as reported, else by the price list."""
    provider: Annotated[str | None, Merge.GREATEST, Shown.ALONE] = None
    """The provider of the model, such as `openai`."""
    parameters: Annotated[str | None, Merge.GREATEST, Shown.ALONE] = None
    """The parameters of the request, such as `temperature`, as the text of a JSON object."""
    offered_tools: Annotated[str | None, Merge.GREATEST, Shown.ALONE] = None
    """The tools that the model could choose, as the text of a JSON array."""
    offered_tools_from: Annotated[UUID | None, Merge.GREATEST, Shown.ALONE] = None
    """An earlier think-act of the run that has the same offered tools and stores the list."""
    node: Annotated[str | None, Merge.GREATEST, Shown.ALONE] = None
    """The node of the agent's graph that called the model."""
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


class ActToolInfo(Record, Outcome, Shifted, Inferred):
    """One tool call: one request to run one tool."""

    tool_call_id: UUID
    """The tool call's id."""
    step_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The step that made the call; null if only the call's id is known."""
    think_act_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The think-act that requested the call; null for a call outside of any think-act."""
    parent_tool_call_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The batch call that contains this call, or the call whose tool made it."""
    continued_plan_id: Annotated[UUID | None, Merge.GREATEST] = None
    """The sub-plan that this call continued. An earlier tool call opened the sub-plan."""
    position: Annotated[int | None, Merge.GREATEST] = None
    """The position in the think-act or in the batch, from 0."""
    provider_call_id: Annotated[str | None, Merge.GREATEST] = None
    """The id that the model provider assigned. It may repeat or be empty."""
    name: Annotated[str | None, Merge.GREATEST] = None
    """The tool's name as the model called it."""
    tool_type: Annotated[str | None, Merge.GREATEST] = None
    """The kind of tool, such as `STATELESS` or `SUBPLAN`."""
    arguments: Annotated[str | None, Merge.GREATEST, Shown.CUT] = None
    """The arguments as the received text, usually JSON."""
    result: Annotated[str | None, Merge.ENDING, Shown.CUT] = None
    """The result as the received text, usually JSON."""
    attempt: Annotated[int | None, Merge.LATEST] = None
    """The number of attempts, at least 1."""
    effective_arguments: Annotated[str | None, Merge.LATEST, Shown.CUT] = None
    """The arguments of the latest attempt, if hooks changed them."""
    forged_arguments: Annotated[list[str], Merge.UNION] = Field(default_factory=list)
    """The names of hidden parameters that the model or a hook tried to supply, sorted."""
    short_circuited_by: Annotated[str | None, Merge.ENDING] = None
    """The hook that returned the result instead of the tool."""
    state_changes: Annotated[str | None, Merge.ENDING, Shown.CUT] = None
    """The call's changes of the session state, as the text of a JSON array."""
    still_running: Annotated[bool | None, Merge.ENDING] = None
    """True if the call ended while its tool continued to run, after a timeout for example."""
    agent_key: str | None = None
    """The emitter's id of the agent that the call set to work."""
    agent_end_sequence: Int64 | None = None
    """The emitter's number of the event with which this agent ended in the background."""


RECORDS: dict[Kind, type[Any]] = {
    Kind.PLAN: PlanExecutionRecord,
    Kind.STEP: AgentExecutionRecord,
    Kind.THINK_ACT: ThinkActRecord,
    Kind.TOOL_CALL: ActToolInfo,
}
"""The class of each kind of record below the run."""

ALL_RECORDS: dict[Kind, type[Any]] = {Kind.RUN: Run, **RECORDS}
"""The class of each kind of record, including the run."""

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
