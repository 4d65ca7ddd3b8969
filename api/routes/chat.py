"""Chat: send a user's message to the application's agents and stream the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from api.dependencies import LauncherDep
from api.problems import documented
from api.schemas import RunSchema
from tracer.context import identity
from tracer.records import Run
from tracer.records.events import ErrorInfo, Event, PlanFinished, ThoughtRecorded

# --- The request and the event stream of the chat route.

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


router = APIRouter(prefix="/api/v1/chat", tags=["chat"])


@dataclass(frozen=True)
class StreamedEvent:
    """The part of a recorded event that the chat stream sends to the client."""

    type: str
    data: dict[str, Any]
    answer: ChatAnswer | None
    """The agents' answer; only the last event has one."""


class ChatStream:
    """A queue that passes a run's events to one reader as they are recorded."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[StreamedEvent] = asyncio.Queue()
        self._is_left = False

    def observe(self, events: Sequence[Event]) -> None:
        """Queue events for the reader. Discard them if the reader has stopped reading."""
        for each in events if not self._is_left else ():
            # Payloads are left out: a slow reader would otherwise keep them in memory.
            self._events.put_nowait(StreamedEvent(each.type, shown(each), _answer(each)))

    async def read(self) -> AsyncGenerator[StreamedEvent]:
        """Yield the events until the run ends."""
        try:
            while True:
                event = await self._events.get()
                yield event
                if event.answer is not None:
                    return
        finally:
            self._is_left = True


@dataclass
class ChatRun:
    """A run that a message started."""

    run: Run
    stream: ChatStream


async def _started(chat_request: ChatRequest, launcher: LauncherDep) -> ChatRun:
    """Start a run for the message. If this fails, the client gets an error instead of a stream."""
    stream = ChatStream()
    with identity(token_id=chat_request.user_id):
        run = await launcher.start(
            chat_request.message,
            agent=chat_request.agent,
            session_id=chat_request.session_id,
            observe=stream.observe,
        )
    return ChatRun(run, stream)


@router.post("", response_class=EventSourceResponse, responses=documented(HTTPStatus.CONFLICT))
async def chat(started: Annotated[ChatRun, Depends(_started)]) -> AsyncIterator[ServerSentEvent]:
    """Send a message to the agents.

    The response is a stream of server-sent events. The first is `run`, the run that the message
    started. Then each recorded event of the run follows, named by its type in
    `docs/reference/protocol.md`. The last is `answer`. If the client closes the stream, the run
    continues.
    """
    run = RunSchema.model_validate(started.run)
    yield ServerSentEvent(event="run", data=run.model_dump(mode="json", by_alias=True))
    async with aclosing(started.stream.read()) as events:
        async for event in events:
            yield ServerSentEvent(event=event.type, data=event.data)
            if event.answer is not None:
                answer = event.answer.model_dump(mode="json", by_alias=True, exclude_none=True)
                yield ServerSentEvent(event="answer", data=answer)


def _answer(event: Event) -> ChatAnswer | None:
    """Return the chat's final answer if the event ends the run, else None."""
    if isinstance(event, PlanFinished) and event.plan_id == event.root_plan_id:
        return ChatAnswer.of(event)
    return None
