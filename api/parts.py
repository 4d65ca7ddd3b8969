"""What the routes stand on, as FastAPI dependencies, each of the caller's project.

Whoever asks for one has to be allowed to: the scope that a route needs follows from what it uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query, Request

from api.freshness import Freshness, freshness_of, up_to_date
from api.intake import Intake
from api.live import StreamSettings
from api.metrics import Metrics
from api.middleware.authentication import CheckCaller
from api.own_spans import OwnSpans
from api.placed_spans import KnownPlaces
from tracer.access import Caller, Scope
from tracer.assembly import Parts
from tracer.errors import ConfigurationError, NotAllowed
from tracer.runtime.launcher import CancelWishes, RunLauncher
from tracer.storage.api_keys import ApiKeys
from tracer.storage.callers import Callers
from tracer.storage.project_stores import ProjectStore
from tracer.storage.projects import SettingsOfProject
from tracer.storage.run_watch import RunWatch
from tracer.store import SpanProjection, TraceReader, TraceWriter


@dataclass(frozen=True)
class Allowed:
    """A dependency: the caller, where a scope allows it. The OpenAPI document tells which."""

    scope: Scope | None
    """None: whoever is known."""

    async def __call__(self, request: Request) -> Caller:
        """Return who asks.

        Raises:
            NotAllowed: The scope is not among the caller's.
        """
        caller = request.state.caller
        assert isinstance(caller, Caller)
        if self.scope is not None and not caller.may(self.scope):
            raise NotAllowed(f"That needs a key with the scope `{self.scope}`.")
        return caller


Known = Annotated[Caller, Depends(Allowed(None))]
Recording = Annotated[Caller, Depends(Allowed(Scope.RECORD))]
Reading = Annotated[Caller, Depends(Allowed(Scope.READ))]
Administering = Annotated[Caller, Depends(Allowed(Scope.ADMIN))]


async def parts_of(request: Request) -> Parts:
    """Return what the server is made of."""
    parts = request.app.state.parts
    assert isinstance(parts, Parts)
    return parts


AllParts = Annotated[Parts, Depends(parts_of)]


async def _store(parts: Parts, caller: Caller) -> Parts | ProjectStore:
    """Return the two sides of the caller's store: the one place where a request meets a project."""
    if caller.project_id == parts.project_id:
        return parts
    if parts.stores is None:
        raise NotAllowed("This server has no other project.")
    return await parts.stores.of(caller.project_id)


def _spans(request: Request) -> OwnSpans:
    spans = request.app.state.spans
    assert isinstance(spans, OwnSpans)
    return spans


async def _projected_reader(request: Request, parts: AllParts, caller: Reading) -> TraceReader:
    return _spans(request).around((await _store(parts, caller)).reader)


async def reader_for(
    request: Request,
    parts: AllParts,
    caller: Reading,
    fresh: Annotated[
        bool,
        Query(
            description="Whether to wait up to 30 seconds until the answer includes every span "
            "that was accepted before the request. Without it a read waits up to 2 seconds for up "
            "to 5,000 spans. An answer that lacks spans has the header `Tracer-Behind`."
        ),
    ] = False,
) -> TraceReader:
    """Return what reads the caller's project, runs and records with their newest spans."""
    store, spans, freshness = await _store(parts, caller), _spans(request), freshness_of(request)
    freshness.is_wanted = fresh
    projection = None if store.projection is None else spans.around(store.projection)
    return up_to_date(spans.around(store.reader), projection, freshness)


async def projection_for(parts: AllParts, caller: Recording) -> SpanProjection | None:
    """Return what projects the spans of the caller's project, if anything does."""
    return (await _store(parts, caller)).projection


async def _freshness(request: Request) -> Freshness:
    return freshness_of(request)


async def _wishes(parts: AllParts, caller: Recording) -> CancelWishes:
    return (await _store(parts, caller)).reader


async def writer_for(request: Request, parts: AllParts, caller: Recording) -> TraceWriter:
    """Return what writes into the caller's project."""
    return _spans(request).around((await _store(parts, caller)).writer)


async def _watch(parts: AllParts, caller: Reading) -> RunWatch:
    return (await _store(parts, caller)).watch


async def _launcher(parts: AllParts, caller: Administering) -> RunLauncher:
    if caller.project_id != parts.project_id:
        raise NotAllowed("The agents of this server work for another project.")
    return parts.launcher


async def _keys(parts: AllParts, caller: Administering) -> ApiKeys:
    if parts.stores is None:
        raise ConfigurationError("This server keeps no keys.")
    if caller.key_id is None:
        raise NotAllowed("The first key is made beside the database: `tracer keys create NAME`.")
    return (await parts.stores.of(caller.project_id)).keys


async def _kept(parts: AllParts, caller: Known) -> SettingsOfProject:
    if parts.stores is None:
        raise ConfigurationError("This server has no projects.")
    return (await parts.stores.of(caller.project_id)).settings


async def _callers(parts: AllParts) -> Callers:
    if parts.callers is None:
        raise ConfigurationError("This server keeps no keys.")
    return parts.callers


async def _check_caller(request: Request) -> CheckCaller:
    check: CheckCaller = request.state.check_caller
    return check


async def intake_of(request: Request) -> Intake:
    """Return the requests in hand."""
    intake = request.app.state.intake
    assert isinstance(intake, Intake)
    return intake


async def metrics_of(request: Request) -> Metrics:
    """Return the server's counters."""
    metrics = request.app.state.metrics
    assert isinstance(metrics, Metrics)
    return metrics


async def _stream_settings(request: Request) -> StreamSettings:
    settings = request.app.state.stream_settings
    assert isinstance(settings, StreamSettings)
    return settings


async def _places(request: Request) -> KnownPlaces:
    places = request.app.state.places
    assert isinstance(places, KnownPlaces)
    return places


Reader = Annotated[TraceReader, Depends(reader_for)]
"""Reads runs and records. Projects their pending spans first."""
ProjectedReader = Annotated[TraceReader, Depends(_projected_reader)]
"""Reads the last projection: for lists, statistics and live changes."""
Fresh = Annotated[Freshness, Depends(_freshness)]
"""Whether the answer includes every accepted span. Complete after the last read."""
Projection = Annotated[SpanProjection | None, Depends(projection_for)]
Wishes = Annotated[CancelWishes, Depends(_wishes)]
"""What whoever records may read."""
Writer = Annotated[TraceWriter, Depends(writer_for)]
Keys = Annotated[ApiKeys, Depends(_keys)]
Kept = Annotated[SettingsOfProject, Depends(_kept)]
"""What the caller's project keeps, and for how long."""
WhoCalls = Annotated[Callers, Depends(_callers)]
Watch = Annotated[RunWatch, Depends(_watch)]
CallerCheck = Annotated[CheckCaller, Depends(_check_caller)]
"""Finds out if the caller is still known."""
Launcher = Annotated[RunLauncher, Depends(_launcher)]
RecordingIntake = Annotated[Intake, Depends(intake_of)]
Measures = Annotated[Metrics, Depends(metrics_of)]
LiveSettings = Annotated[StreamSettings, Depends(_stream_settings)]
Places = Annotated[KnownPlaces, Depends(_places)]
