"""Schemas of the API's requests and responses, with field names in camelCase.

Schemas of records derive from the record classes. The nodes of a tree are in `api.routes.plans`.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any, Generic, Literal, Self, TypeVar
from uuid import UUID

import orjson
from pydantic import (
    AliasGenerator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    computed_field,
    field_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from tracer.records import Kind, Run
from tracer.records.arguments import offered_tools_text
from tracer.records.conversation import ConversationMessage, conversation
from tracer.records.pages import (
    FoundPlace,
    OpenCall,
    OwnFigures,
    RunFailure,
    RunFound,
    RunPreview,
    RunSearch,
    SnippetPart,
    Usd,
)
from tracer.records.prices import known_total
from tracer.records.record_classes import (
    ActToolInfo,
    AgentExecutionRecord,
    Outcome,
    PlanExecutionRecord,
    Record,
    ThinkActRecord,
    Totals,
)
from tracer.store import AnyRecord, ToolCallPreview

ShownStatus = Literal[
    "unknown", "pending", "running", "cancelled", "failed", "succeeded", "abandoned"
]
"""A status as shown: `abandoned` is an open record whose recorder's lease expired."""

PLAN_ID = "01a20033-9dce-7364-82b8-37c32d771382"
SUB_PLAN_ID = "01a20033-9f10-7a51-8c22-6b1d2f3e4a5b"
STEP_ID = "01a20033-9dd0-7b02-9f41-0d3b5a7c9e11"
THINK_ACT_ID = "01a20033-9de1-7c8d-a1b2-c3d4e5f60718"
TOOL_CALL_ID = "01a20033-9e02-7d3e-b4c5-d6e7f8091a2b"
"""Ids of one small run, so that the examples in the OpenAPI document belong together."""


def read_config(**example: Any) -> ConfigDict:
    """Return the pydantic configuration of a response's schema.

    Args:
        example: The fields of an example for the OpenAPI document.
    """
    return ConfigDict(
        # No validation aliases: looking up each field of a record under another name is slow.
        alias_generator=AliasGenerator(serialization_alias=to_camel),
        from_attributes=True,
        use_attribute_docstrings=True,
        json_schema_serialization_defaults_required=True,
        json_schema_extra={"examples": [example]} if example else None,
    )


class ErrorSchema(BaseModel):
    """The error that a record ended with."""

    model_config = read_config(type="ValueError", message="no such patient", stack=None)

    type: str | None
    """The error's class or code; null if none was recorded."""
    message: str | None
    """The error's message."""
    stack: str | None
    """The stack trace, if there is one."""

    @classmethod
    def of(cls, kind: str | None, message: str | None, stack: str | None) -> Self | None:
        """Return an error; None if it has no type, no message and no stack trace."""
        if kind is None and message is None and stack is None:
            return None
        return cls(type=kind, message=message, stack=stack)


class ShownRecord(Record):
    """The fields that responses add to every record."""

    project_id: int = Field(default=1, exclude=True)
    status: ShownStatus = Field(default="unknown", validation_alias="shown_status")  # type: ignore[assignment]
    """The progress of the record. `unknown` is a placeholder that another record referenced."""

    @computed_field  # type: ignore[prop-decorator]  # mypy does not support decorated properties
    @property
    def duration_ms(self) -> float | None:
        """The duration in milliseconds; null while the record is open or has not started."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds() * 1000


class ShownOutcome(ShownRecord, Outcome):
    """The fields that responses add to every record that can fail."""

    error_type: str | None = Field(default=None, exclude=True)
    error_message: str | None = Field(default=None, exclude=True)
    error_stack: str | None = Field(default=None, exclude=True)

    @computed_field  # type: ignore[prop-decorator]  # mypy does not support decorated properties
    @property
    def error(self) -> ErrorSchema | None:
        """The error; null if there is none."""
        return ErrorSchema.of(self.error_type, self.error_message, self.error_stack)


_RUN_EXAMPLE: dict[str, Any] = {
    "rootPlanId": PLAN_ID,
    "title": "Weekly health review",
    "agentName": "planner",
    "status": "succeeded",
    "reason": None,
    "startedAt": "2026-11-21T22:21:52.462812Z",
    "finishedAt": "2026-11-21T22:21:58.112Z",
    "durationMs": 5649.188,
    "abandonedAt": None,
    "cancelRequestedAt": None,
    "recordedAt": "2026-11-21T22:21:52.47Z",
    "recorderId": None,
    "revision": 42,
    "masked": [],
    "sessionId": None,
    "subject": None,
    "tags": ["demo"],
    "traceparent": None,
    "runMetadata": None,
    "serviceName": "health",
    "serviceVersion": "1.4.0",
    "deploymentEnvironment": "production",
    "inputTokens": 5120,
    "outputTokens": 830,
    "costUsd": 0.0121,
    "unpricedCalls": 0,
    "unreadSpans": 0,
    "unreadScopes": [],
    "refusedSpans": 0,
    "followsCalls": [],
    "followsRuns": [],
    "followsKeys": [],
    "promptSequence": None,
    "promptNumber": None,
    "workKeys": [],
    "continuesRunId": None,
    "headId": None,
    "isInside": False,
    "beginningDeleted": False,
    "wholeStatus": None,
    "toolCalls": 14,
    "failedCalls": 1,
}


class PricedTotals(Totals):
    """Totals as the API shows them: an unknown cost is null."""

    cost_usd: Usd | None = Decimal(0)  # type: ignore[assignment]
    """The sum of the known costs of model calls in US dollars. Null if the sum is zero and the cost
    of at least one model call is unknown."""

    @model_validator(mode="after")
    def _is_unknown(self) -> Self:
        self.cost_usd = known_total(self.cost_usd or Decimal(0), self.unpriced_calls)
        return self


class RunSchema(ShownRecord, PricedTotals, Run):
    """A run: the outcome of its root plan and the totals of all its records."""

    model_config = read_config(**_RUN_EXAMPLE)


class RunFailureSchema(RunFailure):
    """The record in which the failure of a run began."""

    model_config = read_config(
        kind="toolCall",
        id=TOOL_CALL_ID,
        name="http_get",
        reason="tool_error",
        errorType="TimeoutError",
        errorMessage="bank.example did not answer",
        depth=2,
    )


class OpenCallSchema(OpenCall):
    """The tool call or model call that a run waits for."""

    model_config = read_config(
        kind="toolCall",
        id=TOOL_CALL_ID,
        name="index_shard",
        arguments='{"shard": 1}',
        startedAt="2026-11-21T22:21:53.1Z",
    )


class OwnFiguresSchema(OwnFigures):
    """The outcome and the totals of the first run of a piece of work, without its other parts."""

    model_config = read_config()

    status: ShownStatus
    cost_usd: Usd | None
    """The sum of the known costs in US dollars; null if it is zero and some costs are unknown."""


class SnippetPartSchema(SnippetPart):
    """A piece of a text in which a search found words."""

    model_config = read_config()


class FoundPlaceSchema(FoundPlace):
    """A record in which a search found words."""

    model_config = read_config(
        rootPlanId=PLAN_ID,
        kind="toolCall",
        id=TOOL_CALL_ID,
        agentName="ledger",
        name="issue_refund",
        position=None,
        field="result",
        snippet=[
            {"text": "Your ", "isMatch": False},
            {"text": "refund", "isMatch": True},
            {"text": " for INV-31337 is done", "isMatch": False},
        ],
    )

    snippet: list[SnippetPartSchema]  # type: ignore[assignment]
    """The part of the field's text around the words, as plain text."""


class RunFoundSchema(RunFound):
    """Why a search lists a run."""

    model_config = read_config()

    places: list[FoundPlaceSchema]  # type: ignore[assignment]
    """The best two places; empty if the server found none in the time that a page has."""


class RunSearchSchema(RunSearch):
    """The records of a run in which a search found words."""

    model_config = read_config()

    items: list[FoundPlaceSchema]  # type: ignore[assignment]
    """The places, by the start of their records. There is one for each record."""


class RunPreviewSchema(RunSchema, RunPreview):
    """A run in the list of runs, with its question, its answer and its failure.

    If other runs continue the run, the status, the reason, the answer, the times, the totals and
    the failures are those of the whole piece of work.
    """

    model_config = read_config(
        **_RUN_EXAMPLE,
        request="Review the week of p-1.",
        answer="All is well.",
        label="Weekly health review",
        subAgents=3,
        failures=1,
        handledFailures=1,
        failure=None,
        openCall=None,
        seenAt=None,
        parts=1,
        own=None,
        found=None,
    )

    found: RunFoundSchema | None = None
    """Why the search lists the run; null without a search."""

    own: OwnFiguresSchema | None = None
    """The outcome and the totals of the run alone; null if `parts` is 1."""
    failure: RunFailureSchema | None = None
    """If the run failed, the record in which the failure began. If there are several, this
    is the one that ended last: an agent that works on after a failure has handled it."""
    open_call: OpenCallSchema | None = None
    """If the run is open, the open call that has run longest and has no agent below it."""


class BehindSchema(BaseModel):
    """How many accepted spans are missing in a run's records, and since when."""

    model_config = read_config(spans=6000, since="2026-11-21T22:21:52.462812Z")

    spans: int
    since: datetime
    """When the first missing span arrived."""


class SingleRunSchema(RunPreviewSchema):
    """A single run."""

    behind: BehindSchema | None = None
    """The spans that the run's records do not include yet; null if they include all of them."""
    projection_error: str | None = None
    """Why the newest spans could not be converted to records; null if they were converted, or are
    still pending."""


class ParentActToolCall(BaseModel):
    """A summary of the tool call that opened a sub-plan."""

    model_config = read_config()

    tool_call_id: UUID
    name: str | None
    """The tool's name; null while only the call's id is known."""
    arguments: str | None
    """The arguments as text. In a tree, the parameter `payloads` sets how much of them is shown."""
    status: ShownStatus = Field(default="unknown", validation_alias="shown_status")


class PlanSchema(ShownOutcome, PlanExecutionRecord):
    """One plan with all its fields."""

    model_config = read_config()


class PlanWithParent(PlanSchema):
    """One plan with all its fields, and the tool call that opened it."""

    model_config = read_config(
        planId=SUB_PLAN_ID,
        rootPlanId=PLAN_ID,
        parentPlanId=PLAN_ID,
        toolCallId=TOOL_CALL_ID,
        openedByStepId=None,
        parentActToolCall={
            "toolCallId": TOOL_CALL_ID,
            "name": "medication_check",
            "arguments": '{"patient": "p-1"}',
            "status": "succeeded",
        },
        title="Medication check",
        userRequest="Check the medication of p-1",
        summary="Two medications, no interaction.",
        status="succeeded",
        reason=None,
        error=None,
        depth=1,
        position=0,
        agentName="pharmacist",
        template="medication_check",
        templateVersion=None,
        inferred=False,
        inferredFrom=None,
        startedAt="2026-11-21T22:21:53.1Z",
        finishedAt="2026-11-21T22:21:55.2Z",
        durationMs=2100.0,
        clockShiftUs=None,
        abandonedAt=None,
        recordedAt="2026-11-21T22:21:53.11Z",
        recorderId=None,
        revision=17,
        masked=[],
    )

    parent_act_tool_call: ParentActToolCall | None = None
    """The tool call that opened this sub-plan; null for a root plan and for a hand-off."""


class ThinkActSchema(ShownOutcome, ThinkActRecord):
    """One round with all its fields, including the model's messages and tools."""

    model_config = read_config()

    cost_usd: Usd | None = None
    """The cost in US dollars: by the project's price, else as reported, else by the price list."""
    messages: str | None = None
    """The messages that the model received, as the text of a JSON array."""

    @field_serializer("offered_tools")
    def _in_one_form(self, tools: str | None) -> str | None:
        """Return the tools with their names. Clients may record them in the form of any API."""
        with suppress(orjson.JSONDecodeError):
            return offered_tools_text(orjson.loads(tools or "[]")) or tools
        return tools

    @computed_field  # type: ignore[prop-decorator]  # mypy does not support decorated properties
    @property
    def conversation(self) -> list[ConversationMessage] | None:
        """The messages in a form that is the same for all model APIs; null if they are not JSON."""
        return conversation(self.messages)


class ToolCallSchema(ShownOutcome, ActToolInfo):
    """One tool call with all its fields."""

    model_config = read_config()


class ToolCallPreviewSchema(ShownOutcome, ToolCallPreview):
    """One tool call in a list. Long strings are cut to 2 kB; their full sizes are included."""

    model_config = read_config()


class LineageItem(BaseModel):
    """One record of a tool call's lineage: the chain from the root plan down to the call."""

    model_config = read_config(
        kind="plan", id=PLAN_ID, name="Weekly health review", status="running"
    )

    kind: Kind
    id: UUID
    name: str | None
    """The plan's title or agent, the step's agent, the round's model, or the tool's name."""
    status: ShownStatus

    @classmethod
    def of(cls, record: AnyRecord) -> LineageItem:
        """Return the lineage item of `record`."""
        match record:
            case PlanExecutionRecord():
                name = record.title or record.agent_name
                kind, record_id = Kind.PLAN, record.plan_id
            case AgentExecutionRecord():
                kind, record_id, name = Kind.STEP, record.step_id, record.agent_name
            case ThinkActRecord():
                name = record.model or record.requested_model
                kind, record_id = Kind.THINK_ACT, record.think_act_id
            case ActToolInfo():
                kind, record_id, name = Kind.TOOL_CALL, record.tool_call_id, record.name
        return cls.model_validate(
            {"kind": kind, "id": record_id, "name": name, "status": record.shown_status}
        )


class ToolCallInPlaceSchema(ToolCallSchema):
    """One tool call with all its fields, its lineage and its sub-plans."""

    model_config = read_config()

    lineage: list[LineageItem] = Field(default_factory=list)
    """The known records from the root plan down to the call."""
    sub_plans: list[PlanSchema] = Field(default_factory=list)
    """The sub-plans that the call opened, in order."""


Item = TypeVar("Item")


class PageSchema(BaseModel, Generic[Item]):
    """A page of a list."""

    model_config = read_config()

    items: list[Item]
    next_cursor: str | None
    """The `cursor` of the next page; null on the last page."""


class SearchedPageSchema(PageSchema[Item], Generic[Item]):
    """A page of a filtered list.

    The server searches a limited number of records for each page. So a page may have fewer items
    than requested, or none. Request the next page while the response has a `nextCursor`.
    """

    searched_back_to: datetime | None
    """If the server did not search all records, the time back to which it searched."""
    indexed_up_to: datetime | None = None
    """If the page answers a search (`q`): all changes before this time are known to it. Null while
    the index is built."""


class RunBinSchema(BaseModel):
    """The number of runs that started in one time interval."""

    model_config = read_config(start="2026-11-21T22:00:00Z", runs=12, failed=1)

    start: datetime
    """The start of the interval. Intervals have equal lengths and are counted from 1970, in UTC."""
    runs: int
    """The number of runs that started in the interval."""
    failed: int
    """How many of these runs failed."""


class RunHistogramSchema(BaseModel):
    """The number of matching runs, in total and by time of start."""

    model_config = read_config(
        count=12,
        intervalSeconds=3600,
        bins=[{"start": "2026-11-21T22:00:00Z", "runs": 12, "failed": 1}],
        failed=1,
        abandoned=0,
        costUsd=0.071,
        unpricedCalls=0,
        p95Ms=16000.0,
        countedBackTo=None,
    )

    count: int
    """The number of matching runs. If `countedBackTo` is set, there are at least this many."""
    interval_seconds: int
    """The length of an interval."""
    bins: list[RunBinSchema]
    """The intervals with runs, earliest first."""
    failed: int
    """How many of the runs failed."""
    abandoned: int
    """How many of the runs are abandoned."""
    cost_usd: Usd
    """The sum of their known costs in US dollars."""
    unpriced_calls: int
    """The number of their model calls whose cost is unknown."""
    p95_ms: float | None
    """The 95th percentile of the durations of ended runs in milliseconds; null without any."""
    counted_back_to: datetime | None
    """If not all runs were examined, the start of the earliest examined run."""


class RecordMatchSchema(BaseModel):
    """A record that a reference may mean."""

    model_config = read_config()

    kind: Kind
    id: UUID
    root_plan_id: UUID
    name: str | None
    """The plan's title or agent, the step's agent, the round's model, or the tool's name."""
    run: RunPreviewSchema | None
    """The record's run."""


class RecordMatches(BaseModel):
    """The records that a reference may mean."""

    model_config = read_config()

    items: list[RecordMatchSchema]
    """At most twenty. Of calls with the same id of a provider, the newest come first."""


class CancelRequests(BaseModel):
    """The runs that have a request to be cancelled or deleted."""

    model_config = read_config(rootPlanIds=[PLAN_ID])

    root_plan_ids: list[UUID]


class GivenStep(BaseModel):
    """A step of a plan that the client supplies."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    request: str = Field(min_length=1)
    """The task of the agent."""
    agent: str | None = None
    """The agent's name; by default the agent of the run."""


class GivenPlan(BaseModel):
    """A plan that the client supplies."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    title: str = Field(min_length=1)
    steps: list[GivenStep] = Field(min_length=1)


class RunRequest(BaseModel):
    """A request to start a run."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        use_attribute_docstrings=True,
        json_schema_extra={
            "examples": [{"request": "How was the blood pressure of p-1 this week?"}]
        },
    )

    request: str = Field(min_length=1)
    """The task in plain words."""
    agent: str | None = None
    """The agent to ask; by default the application's choice."""
    session_id: str | None = None
    """The conversation that the run belongs to."""
    plan: GivenPlan | None = None
    """A plan to execute; if omitted, the planner makes one from the request."""
    token_id: SecretStr | None = Field(default=None, min_length=1)
    """The user: their id, or a token that the application's resolver accepts. Tools receive it;
    models, records and logs do not."""


class Readiness(BaseModel):
    """Whether the server can answer requests."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )

    status: str
    row_level_security: Literal["on", "off"]
    """Whether the database's row-level security also isolates projects. If it is off, the server's
    log contains the reason."""
    projectors: int
    """The number of projectors that are connected to the database, over all servers. A projector
    converts spans to records. Without one, accepted spans are stored and converted later."""
    application: Literal["none", "loading", "ready", "failed"]
    """Whether the server can start runs of the application that `TRACER_APP` names. `none`: the
    variable is not set. `failed`: the application's resources could not be opened. The log contains
    the reason, and the server tries again every 30 seconds."""
    refused_tools: list[str]
    """The tools of the application's tool file that are faulty, and that it works without. The log
    contains the reasons."""


class Health(BaseModel):
    """Whether the server is alive."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "ok"}]})

    status: Literal["ok"]
