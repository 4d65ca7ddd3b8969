"""The request and the event stream of the chat route."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tracer.records.events import ErrorInfo, Event, PlanFinished, ThoughtRecorded

_SHOWN = (
    "type",
    "at",
    "plan_id",
    "step_id",
    "think_act_id",
    "tool_call_id",
    "parent_tool_call_id",
    "title",
    "agent_name",
    "thought",
    "name",
    "attempt",
    "status",
    "reason",
)
"""The fields of an event that the chat stream contains: the agent or tool, and the outcome. The
stream contains no payloads, such as arguments and results."""


class ChatRequest(BaseModel):
    """A message to the application's agents. Names may be in snake_case or in camelCase."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        json_schema_extra={
            "examples": [
                {"message": "记录血压120/80", "user_id": "user123", "session_id": "session456"}
            ]
        },
    )

    message: str = Field(min_length=1)
    """The user's message."""
    user_id: Annotated[str, Field(min_length=1, validation_alias=AliasChoices("user_id", "userId"))]
    """The user: their id, or a token that the application's resolver accepts. Tools receive it;
    models, records and logs do not."""
    session_id: Annotated[
        str | None, Field(min_length=1, validation_alias=AliasChoices("session_id", "sessionId"))
    ] = None
    """The conversation. The agent receives its earlier messages and answers; tools share its
    state. Users with different ids have separate conversations."""
    agent: str | None = None
    """The agent to ask; if omitted, the planner assigns agents."""


class ChatAnswer(BaseModel):
    """The outcome of the run. It is the last event of the stream."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )

    root_plan_id: UUID
    """The run that the message started."""
    status: str
    reason: str | None = None
    answer: str | None = None
    """The agents' answer."""
    error: ErrorInfo | None = None

    @classmethod
    def of(cls, ended: PlanFinished) -> ChatAnswer:
        """Create the answer from the event that ended the run's root plan."""
        error = ended.error and ended.error.model_copy(update={"stack": None})
        return cls(
            root_plan_id=ended.root_plan_id,
            status=ended.status,
            reason=ended.reason,
            answer=ended.summary,
            error=error,
        )


def shown(event: Event) -> dict[str, Any]:
    """Return those fields of an event that the chat stream sends to the client."""
    fields = event.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(_SHOWN))
    if isinstance(event, ThoughtRecorded) and event.tool_calls:
        fields["toolCalls"] = [
            {"toolCallId": str(each.tool_call_id), "name": each.name, "status": each.status}
            for each in event.tool_calls
        ]
    return fields
