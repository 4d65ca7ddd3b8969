"""FastAPI dependencies that give routes access to the caller's project.

A dependency also checks that the caller has the required scope, such as `read`. So the dependencies
of a route determine which scopes its callers need.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import Depends, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_params_to_args
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, request_response

from api import problems
from api.freshness import Freshness, freshness_of, up_to_date
from api.metrics import Metrics
from api.middleware.authentication import COOKIE, SIGN_IN, CheckCaller
from api.parts import (
    ApiKeys,
    Authenticator,
    Launcher,
    ModelPrices,
    Parts,
    ProjectStore,
    RunWatch,
    SettingsOfProject,
)
from api.problems import COMMON_PROBLEMS
from api.requests import Intake, name_lineage, refuse_unknown_parameters
from api.run_events import StreamSettings
from tracer.errors import ConfigurationError, NoApplication, NotAllowed, RecordNotFound
from tracer.records.access import Caller, Scope, lacking
from tracer.store import CancelRequestReader, SpanProjection, TraceReader, TraceWriter


@dataclass(frozen=True)
class Allowed:
    """A dependency that returns the caller, and rejects a caller without the required scope.

    The OpenAPI document shows the scope.
    """

    scope: Scope | None
    """The required scope. None: every authenticated caller is admitted."""

    async def __call__(self, request: Request) -> Caller:
        """Return the caller.

        Raises:
            NotAllowed: The caller lacks the scope.
        """
        caller = request.state.caller
        assert isinstance(caller, Caller)
        if self.scope is not None:
            check_scope(caller, self.scope)
        return caller


def check_scope(caller: Caller, scope: Scope) -> None:
    """Raise `NotAllowed` if the caller lacks a scope."""
    if not caller.may(scope):
        raise NotAllowed(lacking(scope))


AnyCaller = Annotated[Caller, Depends(Allowed(None))]
Recording = Annotated[Caller, Depends(Allowed(Scope.RECORD))]
Reading = Annotated[Caller, Depends(Allowed(Scope.READ))]
Administering = Annotated[Caller, Depends(Allowed(Scope.ADMIN))]


Value = TypeVar("Value")


def _from_state(name: str, kind: type[Value]) -> Callable[[Request], Awaitable[Value]]:
    """Return a FastAPI dependency that reads the attribute `name` of `app.state`."""

    async def from_state(request: Request) -> Value:
        value = getattr(request.app.state, name)
        assert isinstance(value, kind)
        return value

    return from_state


parts_of = _from_state("parts", Parts)
intake_of = _from_state("intake", Intake)
metrics_of = _from_state("metrics", Metrics)

AllParts = Annotated[Parts, Depends(parts_of)]


async def _store(parts: Parts, caller: Caller) -> Parts | ProjectStore:
    """Return the store of the caller's project. No other function selects a request's project."""
    if caller.project_id == parts.project_id:
        return parts
    if parts.stores is None:
        raise NotAllowed(
            "This key belongs to another project. Use a key of the project that this server serves."
        )
    return await parts.stores.of(caller.project_id)


async def _projected_reader(parts: AllParts, caller: Reading) -> TraceReader:
    return (await _store(parts, caller)).reader


FreshWanted = Annotated[
    bool,
    Query(
        description="Whether to wait up to 30 seconds until the answer includes every span "
        "that was accepted before the request. If false, the server waits up to 2 seconds for "
        "up to 5,000 spans. An answer that lacks spans has the header `Tracer-Behind`."
    ),
]


async def reader_for(
    request: Request,
    parts: AllParts,
    caller: Reading,
    fresh: FreshWanted = False,
) -> TraceReader:
    """Return a reader of the caller's project.

    Before it reads a run, the reader converts the run's pending spans to records.
    """
    store, freshness = await _store(parts, caller), freshness_of(request)
    freshness.is_wanted = fresh
    return up_to_date(store.reader, store.projection, freshness)


async def projection_for(parts: AllParts, caller: Recording) -> SpanProjection | None:
    """Return the projection of the caller's project, which converts spans to records.

    Return None if the store has no projection.
    """
    return (await _store(parts, caller)).projection


async def _freshness(request: Request) -> Freshness:
    return freshness_of(request)


async def _cancel_requests(parts: AllParts, caller: Recording) -> CancelRequestReader:
    return (await _store(parts, caller)).reader


async def writer_for(parts: AllParts, caller: Recording) -> TraceWriter:
    """Return the writer of the caller's project."""
    return (await _store(parts, caller)).writer


async def _watch(parts: AllParts, caller: Reading) -> RunWatch:
    return (await _store(parts, caller)).watch


async def _launcher(parts: AllParts, caller: Administering) -> Launcher:
    if parts.application is None:
        raise NoApplication
    if caller.project_id != parts.project_id:
        raise NotAllowed(
            "The agents of this server belong to another project. Use a key of that project."
        )
    return parts.application.launcher


async def _keys(parts: AllParts, caller: Administering) -> ApiKeys:
    if parts.stores is None:
        raise ConfigurationError("This server works without keys, so keys cannot be managed.")
    if caller.key_id is None:
        raise NotAllowed("Create the first key on the server: `tracer keys create NAME`.")
    return (await parts.stores.of(caller.project_id)).keys


async def _project_settings(parts: AllParts, caller: AnyCaller) -> SettingsOfProject:
    if parts.stores is None:
        raise ConfigurationError("This server has no projects, so it has no settings or prices.")
    return (await parts.stores.of(caller.project_id)).settings


async def _prices(parts: AllParts, caller: AnyCaller) -> ModelPrices:
    if parts.stores is None:
        raise ConfigurationError("This server has no projects, so it has no settings or prices.")
    return (await parts.stores.of(caller.project_id)).prices


async def _authenticator(parts: AllParts) -> Authenticator:
    if parts.authenticator is None:
        raise ConfigurationError("This server works without keys, so keys cannot be managed.")
    return parts.authenticator


async def _check_caller(request: Request) -> CheckCaller:
    check: CheckCaller = request.state.check_caller
    return check


Reader = Annotated[TraceReader, Depends(reader_for)]
"""Reads runs and records. Before each read, converts the run's pending spans to records."""
ProjectedReader = Annotated[TraceReader, Depends(_projected_reader)]
"""Reads existing records without converting pending spans: for lists, statistics, live changes."""
Fresh = Annotated[Freshness, Depends(_freshness)]
"""Whether the answer includes every accepted span. Known only after the request's last read."""
Projection = Annotated[SpanProjection | None, Depends(projection_for)]
CancelRequestsDep = Annotated[CancelRequestReader, Depends(_cancel_requests)]
"""Reads requests to cancel runs. Recording programs may read them."""
Writer = Annotated[TraceWriter, Depends(writer_for)]
Keys = Annotated[ApiKeys, Depends(_keys)]
ProjectSettingsDep = Annotated[SettingsOfProject, Depends(_project_settings)]
"""The settings of the caller's project."""
Prices = Annotated[ModelPrices, Depends(_prices)]
"""The model prices that the caller's project has set."""
AuthenticatorDep = Annotated[Authenticator, Depends(_authenticator)]
Watch = Annotated[RunWatch, Depends(_watch)]
CallerCheck = Annotated[CheckCaller, Depends(_check_caller)]
"""Raises if the caller's access has ended."""
LauncherDep = Annotated[Launcher, Depends(_launcher)]
RecordingIntake = Annotated[Intake, Depends(intake_of)]
MetricsDep = Annotated[Metrics, Depends(metrics_of)]
LiveSettings = Annotated[StreamSettings, Depends(_from_state("stream_settings", StreamSettings))]


# --- The security sections of the OpenAPI document, derived from the routes' dependencies.

SCHEMES: dict[str, Any] = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key from `tracer keys create`. Not needed until the first one exists.",
    },
    "signIn": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "The cookie of a browser that signed in with a key.",
    },
}

_REFUSALS = problems.documented(HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def document_security(document: dict[str, Any], routes: Iterable[BaseRoute]) -> None:
    """Add each operation's scope and its authentication errors to an OpenAPI document.

    Args:
        document: The document, which is changed.
        routes: The routes of the document.
    """
    document["components"]["securitySchemes"] = SCHEMES
    for route in routes:
        if not isinstance(route, APIRoute):
            continue
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            if route.path == SIGN_IN and method == "POST":
                operation["security"] = []
                continue
            scopes = set(scopes_of(route.dependant))
            shown = [Scope.ADMIN.value] if Scope.ADMIN in scopes else sorted(map(str, scopes))
            operation["security"] = [{scheme: shown} for scheme in SCHEMES]
            for status, response in _REFUSALS.items():
                operation["responses"].setdefault(str(status), response)


def scopes_of(dependant: Dependant) -> Iterator[Scope]:
    """Yield the scopes that a dependency and all its sub-dependencies require."""
    if isinstance(dependant.call, Allowed) and dependant.call.scope is not None:
        yield dependant.call.scope
    for each in dependant.dependencies:
        yield from scopes_of(each)


# --- Routes that Starlette serves and FastAPI only documents, for the most frequent requests.
#
# FastAPI's routing and dependencies take up to 1 ms of processor time for each request. This is a
# quarter of the time that it takes to return a tree of 100 records.


class PlainRoute(APIRoute):
    """A route that calls its endpoint with the request and its parameters.

    The endpoint declares its parameters as FastAPI's endpoints do, and the OpenAPI document is made
    from them. It may not have dependencies. Add the route to the application itself: a router that
    is included would wrap it.
    """

    def __init__(
        self,
        method: str,
        path: str,
        endpoint: Callable[..., Awaitable[Response]],
        allowed: Allowed,
        responses: dict[int | str, dict[str, Any]],
        **documentation: Any,
    ) -> None:
        """Create a route; `documentation` are further arguments of `APIRoute`."""
        super().__init__(
            path,
            endpoint,
            methods=[method],
            dependencies=[Depends(allowed)],
            response_model=None,
            operation_id=endpoint.__name__,
            responses=COMMON_PROBLEMS | responses,
            **documentation,
        )
        declared = self.dependant

        async def answer(request: Request) -> Response:
            await name_lineage(request)
            await allowed(request)
            if request.scope["query_string"]:
                await refuse_unknown_parameters(request)
            values, errors = dict[str, Any](), list[Any]()
            for fields, received in (
                (declared.path_params, request.path_params),
                (declared.query_params, request.query_params),
                (declared.header_params, request.headers),
            ):
                valid, invalid = request_params_to_args(fields, received)
                values |= valid
                errors += invalid
            if errors:
                raise RequestValidationError(errors)
            return await endpoint(request, **values)

        self.app = request_response(answer)


# --- 404 for ids of records that do not exist any more, with a link to the run.
#
# A run's records are computed again when new spans arrive or on request, and may then change. A
# record that is made from a span gets an id that depends on the kind of the record. A later update
# of the span, or a newer version of Tracer, may turn the same span into another kind of record with
# another id.

MADE_FROM_SPAN = 8
"""The UUID version (RFC 9562) of the ids of records that are made from spans."""


@asynccontextmanager
async def naming_run(reader: TraceReader, record_id: UUID) -> AsyncIterator[None]:
    """If the block raises `RecordNotFound`, add the path of the run that had the record."""
    try:
        yield
    except RecordNotFound as error:
        if record_id.version == MADE_FROM_SPAN:
            run_ids = await reader.find_runs_like(record_id)
            if len(run_ids) == 1:
                raise error.in_run(f"/api/runs/{run_ids[0]}") from None
        raise
