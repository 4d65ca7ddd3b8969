"""What the routes stand on, as FastAPI dependencies: the store's two sides and the launcher."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from tracer.assembly import Parts
from tracer.runtime.launcher import RunLauncher
from tracer.store import TraceReader, TraceWriter


def _parts(request: Request) -> Parts:
    parts = request.app.state.parts
    assert isinstance(parts, Parts)
    return parts


def _reader(parts: Annotated[Parts, Depends(_parts)]) -> TraceReader:
    return parts.reader


def _writer(parts: Annotated[Parts, Depends(_parts)]) -> TraceWriter:
    return parts.writer


def _launcher(parts: Annotated[Parts, Depends(_parts)]) -> RunLauncher:
    return parts.launcher


Reader = Annotated[TraceReader, Depends(_reader)]
Writer = Annotated[TraceWriter, Depends(_writer)]
Launcher = Annotated[RunLauncher, Depends(_launcher)]
