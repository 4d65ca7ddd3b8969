"""Events: what the runtime and HTTP clients write. Each event describes one moment of a run.

In JSON, names are in camelCase and `type` states the kind of event. `docs/reference/protocol.md`
explains the events. `docs/events.schema.json` is generated from these classes. Each event contains
the ids of its record and of all parents, so that events can be stored in any order.

Strings in an event are in stored form (`tracer.text`). If an event is created in Python, its
strings are escaped. If it is read from JSON, its strings are in stored form already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Self, TypedDict, TypeVar
from uuid import UUID

import orjson
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from tracer.records.prices import MOST_TOKENS, MOST_USD, USD_PLACES
from tracer.records.status import Status
from tracer.text import escape, is_plain, preview, storable

# --- Error messages for invalid input. They quote field names, but no other part of the input.

_MAX_FIELD_BYTES = 64
"""The maximum length of a field's name in a message. A client can send any name."""

_MESSAGES = {
    "union_tag_invalid": "unknown type of event; use one of {expected_tags}",
    "union_tag_not_found": "an event needs a type",
    "uuid_parsing": "write it as a UUID",
}
"""Messages by pydantic's type of error. They replace pydantic's own messages, which quote the
input. A name in braces is replaced by the value that pydantic reports in the error's context."""


def validation_message(error: ValidationError) -> str:
    """Return the first validation error as a sentence, without values from the input."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(_field_name(part) for part in first["loc"])
    problem = first["msg"].removeprefix("Value error, ")
    if (message := _MESSAGES.get(first["type"])) is not None:
        problem = message.format_map(first.get("ctx", {}))
    return f"{path}: {problem}." if path else f"{problem}."


def _field_name(part: int | str) -> str:
    return preview(storable(str(part)), _MAX_FIELD_BYTES)


class Stamp(TypedDict):
    """The fields that a recorder sets on each of its events."""

    at: datetime
    recorder_id: UUID


def _stored_form(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, str) or is_plain(value):
        return value
    from_the_wire = info.mode == "json" or info.context is FROM_THE_WIRE
    return storable(value) if from_the_wire else escape(value)


def _rfc_3339(value: Any) -> Any:
    # Pydantic would interpret numbers, also in strings, as seconds since 1970.
    if isinstance(value, (int, float)) or (isinstance(value, str) and "-" not in value[4:5]):
        raise ValueError("write the time as RFC 3339, such as 2026-01-31T12:00:00.123456Z")
    return value


def _json_array(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        value = json.dumps(value, separators=(",", ":"))
    if isinstance(value, str) and not _is_json(value, list):
        raise ValueError("must be a JSON array, or a string that contains one")
    return value


def _json_object(value: Any) -> Any:
    if isinstance(value, Mapping):
        value = json.dumps(dict(value), separators=(",", ":"))
    if isinstance(value, str) and not _is_json(value, dict):
        raise ValueError("must be a JSON object, or a string that contains one")
    return value


def _is_json(text: str, kind: type[list[Any]] | type[dict[str, Any]]) -> bool:
    # orjson rejects lone surrogates, which `json` reads and writes.
    for loads in (orjson.loads, json.loads):
        try:
            return isinstance(loads(text), kind)
        except (ValueError, RecursionError):
            continue
    return False


def _plain(cost: Decimal) -> Decimal:
    """Return `cost` without trailing zeros, so that equal costs have the same text."""
    return cost.normalize() if cost % 1 else cost.quantize(Decimal(1))


def _true_or_none(fact: bool | None) -> bool | None:
    """Return None for False, because an absent field also means false."""
    return fact or None


PROTOCOL_VERSION = 1
"""The protocol version (`docs/reference/protocol.md`). Each new event or field increments it;
servers of an older version reject events of a newer one."""

PROTOCOL_HEADER = "Tracer-Protocol"
"""The HTTP header in which clients and servers state their protocol version."""

FROM_THE_WIRE = {"strings": "stored form"}
"""The pydantic validation context for events that a JSON parser has already decoded. Their strings
are in stored form already, so they are not escaped."""

Text = Annotated[str, BeforeValidator(_stored_form)]
"""Text in stored form."""

JsonArray = Annotated[
    Text,
    BeforeValidator(_json_array),
    WithJsonSchema({"anyOf": [{"type": "array", "items": {}}, {"type": "string"}]}),
]
"""A JSON array, or the JSON text of an array. It is stored as text."""

JsonObject = Annotated[
    Text,
    BeforeValidator(_json_object),
    WithJsonSchema({"anyOf": [{"type": "object"}, {"type": "string"}]}),
]
"""A JSON object, or the JSON text of an object. It is stored as text."""

CostUsd = Annotated[
    Decimal,
    Field(ge=0, lt=MOST_USD, decimal_places=USD_PLACES),
    AfterValidator(_plain),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}),
]
"""US dollars, to twelve decimal places."""

Timestamp = Annotated[
    AwareDatetime,
    # Before the conversion: times in the years 1 and 9999 cannot be converted between zones, in
    # Python and in Postgres. First, so that pydantic's core compares, and not Python code.
    Field(ge=datetime(1900, 1, 1, tzinfo=UTC), lt=datetime(9000, 1, 1, tzinfo=UTC)),
    BeforeValidator(_rfc_3339),
    AfterValidator(lambda moment: moment.astimezone(UTC)),
]
"""An RFC 3339 time with its offset, to the microsecond."""

Position = Annotated[int, Field(ge=0, lt=2**31)]
Tokens = Annotated[int, Field(ge=0, lt=MOST_TOKENS)]
Attempt = Annotated[int, Field(ge=1, lt=2**31)]
ReasonName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
"""A member of `tracer.records.status.Reason`, or a code that the recording program defines."""
Item = TypeVar("Item")
FailFastTuple = Annotated[tuple[Item, ...], FailFast()]
"""A list. If items are invalid, only the first error is reported, because there may be millions."""
EndingStatus = Literal[Status.CANCELLED, Status.FAILED, Status.SUCCEEDED]


class _Shape(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        use_attribute_docstrings=True,
        defer_build=True,  # a process records few kinds of event
    )


class ErrorInfo(_Shape):
    """The error of a failed record."""

    type: Text
    """The error's class or code."""
    message: Text = ""
    """The message of the error."""
    stack: Text | None = None
    """The stack trace of the error."""


class _Event(_Shape):
    at: Timestamp
    """The time of the event, by the clock of the recording process."""
    root_plan_id: UUID
    """The id of the run, which is the id of its root plan."""
    plan_id: UUID
    recorder_id: UUID | None = None
    """The recorder that sends the event."""


class _Ending(_Shape):
    status: EndingStatus
    """The final status."""
    reason: ReasonName | None = None
    """Why the record ended with this status, as a code."""
    error: ErrorInfo | None = None


class PlannedStep(_Shape):
    """A step that a plan announces before the step starts."""

    step_id: UUID
    agent_name: Text | None = None
    request: Text | None = None
    """The request to the agent."""


class PlanStarted(_Event):
    """A plan starts, before any of its agents runs. Its steps are recorded as `pending`."""

    type: Literal["plan_started"] = "plan_started"
    parent_plan_id: UUID | None = None
    """The plan whose tool call or step opened this one; absent for the root plan."""
    tool_call_id: UUID | None = None
    """The tool call that opened this sub-plan."""
    opened_by_step_id: UUID | None = None
    """The step that opened this sub-plan by a hand-off. Do not combine it with `toolCallId`."""
    position: Position = 0
    """The position among the sub-plans of one tool call or step, from 0."""
    depth: Position = 0
    """The number of plans above this one: 0 for the root plan."""
    title: Text | None = None
    """The title in lists; if absent, the first line of the request."""
    user_request: Text | None = None
    """The request, word for word."""
    agent_name: Text | None = None
    """The agent that runs the plan."""
    template: Text | None = None
    template_version: Text | None = None
    steps: FailFastTuple[PlannedStep] = ()
    """The plan's steps in order."""
    session_id: Text | None = None
    """The conversation that the run belongs to. Ignored for a sub-plan."""
    subject: Text | None = None
    """The person whose data the run contains. Ignored for a sub-plan."""
    tags: FailFastTuple[Text] = ()
    """The labels of the run. Ignored for a sub-plan."""
    traceparent: Text | None = None
    """The W3C trace context of the request. Ignored for a sub-plan."""
    run_metadata: JsonObject | None = None
    """The metadata of the run. Ignored for a sub-plan."""
    service_name: Text | None = None
    """The name of the service, as OpenTelemetry's `service.name`; for a root plan only."""
    service_version: Text | None = None
    """The version of the service, as `service.version`; for a root plan only."""
    deployment_environment: Text | None = None
    """The environment in which the service runs, as `deployment.environment.name`; for a root plan
    only."""
    follows_calls: FailFastTuple[UUID] = ()
    """The tool calls of other runs whose work the run continues. Ignored for a sub-plan."""
    follows_runs: FailFastTuple[UUID] = ()
    """The runs whose work the run continues. Ignored for a sub-plan."""
    follows_keys: FailFastTuple[Text] = ()
    """The provider call ids of the tool calls whose work the run continues. They count within the
    session. Ignored for a sub-plan."""
    work_keys: FailFastTuple[Text] = ()
    """Ids of the whole piece of work. Runs of the session that share one are parts of the same
    work. Ignored for a sub-plan."""

    @model_validator(mode="after")
    def _has_its_place(self) -> Self:
        openers = (self.tool_call_id, self.opened_by_step_id)
        if self.plan_id == self.root_plan_id:
            if self.parent_plan_id or any(openers):
                raise ValueError(
                    "a root plan (planId equals rootPlanId) must not have parentPlanId, toolCallId "
                    "or openedByStepId: remove them, or give the sub-plan an id of its own"
                )
            return self
        if self.parent_plan_id is None or openers.count(None) != 1:
            raise ValueError(
                "a sub-plan must have parentPlanId, and either toolCallId or, for a hand-off, "
                "openedByStepId"
            )
        if self.parent_plan_id == self.plan_id:
            raise ValueError("a plan must not be its own parent: correct parentPlanId")
        return self


class PlanFinished(_Event, _Ending):
    """A plan ends."""

    type: Literal["plan_finished"] = "plan_finished"
    summary: Text | None = None
    """The outcome of the plan, as text."""
    not_reached_step_ids: FailFastTuple[UUID] = ()
    """The steps that did not start. They end `cancelled` with the reason `not_reached`."""


class _StepEvent(_Event):
    step_id: UUID


class StepStarted(_StepEvent):
    """An agent starts a step."""

    type: Literal["step_started"] = "step_started"
    position: Position | None = None
    """The position among the plan's steps, if the plan did not announce the step."""
    agent_name: Text | None = None
    request: Text | None = None


class StepFinished(_StepEvent, _Ending):
    """An agent ends a step."""

    type: Literal["step_finished"] = "step_finished"
    result: Text | None = None
    """The agent's final answer."""


class _ThoughtEvent(_StepEvent):
    think_act_id: UUID


class ThoughtStarted(_ThoughtEvent):
    """A request is sent to the model."""

    type: Literal["thought_started"] = "thought_started"
    position: Position
    """The index of the think-act within the step, from 0."""
    requested_model: Text | None = None
    """The name of the requested model."""
    messages: JsonArray | None = None
    """The messages to the model."""
    provider: Text | None = None
    """The provider of the model, such as `openai`."""
    parameters: JsonObject | None = None
    """The parameters of the request, such as `temperature`."""
    offered_tools: JsonArray | None = None
    """The tools that the model can choose, each with `name`, `description` and `parameters`."""
    offered_tools_from: UUID | None = None
    """The id of an earlier think-act of the run with the same offered tools. It replaces
    `offeredTools`, so that a list of tools is sent only once."""
    node: Text | None = None
    """The node of the agent's graph that sends the request."""


class ChosenToolCall(_Shape):
    """A tool call that the model chose."""

    tool_call_id: UUID
    name: Text
    arguments: Text | None = None
    """The arguments, as the text that the model sent, usually JSON."""
    provider_call_id: Text | None = None
    """The id that the model provider assigned, unchanged. It may repeat or be empty."""
    tool_type: Text | None = None
    status: Literal[Status.RUNNING, Status.PENDING] = Status.RUNNING
    """`running` if the call starts at once, `pending` if it waits."""


class ThoughtRecorded(_ThoughtEvent, _Ending):
    """The model answered or failed. The event is sent before any of the chosen tools runs."""

    type: Literal["thought_recorded"] = "thought_recorded"
    thought: Text | None = None
    """The text of the model's answer."""
    model: Text | None = None
    """The name of the model that answered, as the provider reports it."""
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cost_usd: CostUsd | None = None
    """The cost in US dollars."""
    provider: Text | None = None
    """The provider of the model, if `thought_started` did not name it."""
    finish_reasons: FailFastTuple[Text] = ()
    """Why the model stopped, such as `stop` or `tool_calls`."""
    cache_read_tokens: Tokens | None = None
    """The input tokens that the provider read from its cache."""
    cache_written_tokens: Tokens | None = None
    """The input tokens that the provider wrote to its cache."""
    reasoning_tokens: Tokens | None = None
    """The output tokens that the model spent on reasoning."""
    first_token_at: Timestamp | None = None
    """When the first token of the answer arrived."""
    tool_calls: FailFastTuple[ChosenToolCall] = ()
    """The chosen tool calls in the model's order."""


class _ToolCallEvent(_StepEvent):
    tool_call_id: UUID
    think_act_id: UUID | None = None
    """The think-act that requested the call; absent for a call outside of any think-act."""
    parent_tool_call_id: UUID | None = None
    """The batch call that contains this call, or the call whose tool made it."""

    @field_validator("parent_tool_call_id")
    @classmethod
    def _is_not_its_own(cls, parent: UUID | None, info: ValidationInfo) -> UUID | None:
        if parent is not None and parent == info.data.get("tool_call_id"):
            raise ValueError("parentToolCallId must not be the id of the tool call itself")
        return parent


class ToolCallStarted(_ToolCallEvent):
    """A tool call starts: a queued call, one outside of any think-act, a batch item, or a retry.

    If `thought_recorded` reports a call as `running`, its first attempt needs no
    `tool_call_started` event.
    """

    type: Literal["tool_call_started"] = "tool_call_started"
    name: Text
    arguments: Text | None = None
    provider_call_id: Text | None = None
    tool_type: Text | None = None
    position: Position | None = None
    """The position in the think-act or in the batch, from 0."""
    continued_plan_id: UUID | None = None
    """The sub-plan that this call continues. An earlier tool call opened the sub-plan."""
    attempt: Attempt = 1
    effective_arguments: Text | None = None
    """The arguments of this attempt, if hooks changed them."""
    forged_arguments: FailFastTuple[Text] = ()
    """The names of hidden parameters that the model or a hook tried to supply."""


class ToolCallFinished(_ToolCallEvent, _Ending):
    """A tool call ends, after its last attempt. Each item of a batch has its own event."""

    type: Literal["tool_call_finished"] = "tool_call_finished"
    result: Text | None = None
    """The result as text, usually JSON."""
    attempt: Attempt = 1
    forged_arguments: FailFastTuple[Text] = ()
    """The names of hidden parameters that the model or a hook tried to supply."""
    short_circuited_by: Text | None = None
    """The hook that returned the result instead of the tool."""
    state_changes: JsonArray | None = None
    """The call's changes of the session state."""
    still_running: Annotated[bool | None, AfterValidator(_true_or_none)] = None
    """True if the call ended while its tool continues to run, for example after a timeout."""


Event = (
    PlanStarted
    | PlanFinished
    | StepStarted
    | StepFinished
    | ThoughtStarted
    | ThoughtRecorded
    | ToolCallStarted
    | ToolCallFinished
)

EVENT: TypeAdapter[Event] = TypeAdapter(
    Annotated[Event, Field(discriminator="type")], config=ConfigDict(defer_build=True)
)
"""Validates one event from Python or JSON, and serialises it (`dump_json(by_alias=True)`)."""


def event_json(event: Event) -> bytes:
    """Return an event as one line of JSON in UTF-8. Fields with null are omitted."""
    return event.model_dump_json(by_alias=True, exclude_none=True).encode()
