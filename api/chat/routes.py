"""Chat: send a user's message to the application's agents and stream the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.sse import EventSourceResponse, ServerSentEvent

from api.chat.schemas import ChatAnswer, ChatRequest, shown
from api.dependencies import LauncherDep
from api.http.problems import documented
from api.schemas import RunSchema
from tracer.context import identity
from tracer.records.events import Event, PlanFinished
from tracer.records.record_classes import Run

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
