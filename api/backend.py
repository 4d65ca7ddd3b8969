"""What the routes stand on: a store to read and write, and an application to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol
from uuid import UUID

from fastapi import Depends, Request

from tracer.errors import ConfigurationError
from tracer.store import TraceReader, TraceWriter


class RunStarter(Protocol):
    """Starts runs of the server's application; `tracer.runtime.launcher` implements it."""

    async def start(
        self,
        request: str,
        *,
        agent: str | None = None,
        session_id: str | None = None,
        traceparent: str | None = None,
        plan: tuple[str, list[tuple[str | None, str]]] | None = None,
    ) -> UUID:
        """Start a run and return its id once its record is durable; it goes on in the background.

        Args:
            request: What is asked.
            agent: The agent to ask; None leaves it to the application.
            session_id: The conversation that the run belongs to.
            traceparent: The W3C trace context that the request came with.
            plan: A title and steps (agent or None, request) to carry out as they are.

        Raises:
            BadRequest: The application has no such agent.
        """


@dataclass(frozen=True)
class Backend:
    """The parts that `tracer.assembly` plugs into the API."""

    reader: TraceReader
    writer: TraceWriter
    starter: RunStarter | None
    """None where the server runs no application."""


def _backend(request: Request) -> Backend:
    backend = request.app.state.backend
    assert isinstance(backend, Backend)
    return backend


def _reader(backend: Annotated[Backend, Depends(_backend)]) -> TraceReader:
    return backend.reader


def _writer(backend: Annotated[Backend, Depends(_backend)]) -> TraceWriter:
    return backend.writer


def _starter(backend: Annotated[Backend, Depends(_backend)]) -> RunStarter:
    if backend.starter is None:
        raise ConfigurationError(
            "This server runs no application. Set TRACER_APP to module:name and start it again."
        )
    return backend.starter


Reader = Annotated[TraceReader, Depends(_reader)]
Writer = Annotated[TraceWriter, Depends(_writer)]
Starter = Annotated[RunStarter, Depends(_starter)]
