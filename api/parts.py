"""What the routes stand on, as FastAPI dependencies: store, launcher, intake."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from api.intake import Intake
from tracer.assembly import Parts
from tracer.runtime.launcher import RunLauncher
from tracer.storage.run_watch import RunWatch
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


def _watch(parts: Annotated[Parts, Depends(_parts)]) -> RunWatch:
    return parts.watch


def _intake(request: Request) -> Intake:
    intake = request.app.state.intake
    assert isinstance(intake, Intake)
    return intake


Reader = Annotated[TraceReader, Depends(_reader)]
Writer = Annotated[TraceWriter, Depends(_writer)]
Watch = Annotated[RunWatch, Depends(_watch)]
Launcher = Annotated[RunLauncher, Depends(_launcher)]
RecordingIntake = Annotated[Intake, Depends(_intake)]
