"""Create the FastAPI application of a server."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.middleware import Middleware

from api import otlp, problems, viewer
from api.dependencies import document_security
from api.metrics import Metrics
from api.middleware import (
    BodyLimit,
    Compression,
    ErrorResponses,
    ETags,
    OtlpOrigins,
    RequestLog,
    ResponseHeaders,
    UnknownPages,
)
from api.middleware.authentication import Access, Authentication
from api.parts import Parts
from api.requests import Intake, name_lineage, refuse_unknown_parameters
from api.routes import (
    chat,
    diff,
    events,
    health,
    keys,
    live,
    plans,
    prices,
    projects,
    questions,
    runs,
    sessions,
    spans,
    stats,
    tool_calls,
)
from api.routes.events import event_components
from api.routes.plans import components
from api.run_events import DEFAULT_SETTINGS, ChangedRecords, RunRevision, StreamSettings
from tracer.lineage.diff import RunDiff
from tracer.lineage.tree import PlanNode

ROUTERS = (
    events.router,
    otlp.router,
    runs.router,
    runs.export_router,
    runs.find_router,
    spans.router,
    events.lease_router,
    live.router,
    questions.router,
    diff.router,
    stats.router,
    stats.overview_router,
    runs.cancel_router,
    plans.router,
    tool_calls.router,
    tool_calls.think_act_router,
    chat.router,
    keys.sign_in_router,
    keys.router,
    projects.router,
    prices.router,
    projects.subject_router,
    sessions.router,
    sessions.turn_router,
    health.metrics_router,
)
"""The routers of the API. Each route needs an authenticated caller, unless its path is public."""

PLAIN_ROUTES = (*otlp.PLAIN_ROUTES, plans.TREE_ROUTE, questions.MCP_ROUTE)

ALL_ROUTES = [*PLAIN_ROUTES, *(route for router in ROUTERS for route in router.routes)]


def create_app(
    parts: Parts | None = None,
    intake: Intake | None = None,
    access: Access | None = None,
    stream_settings: StreamSettings = DEFAULT_SETTINGS,
    metrics: Metrics | None = None,
) -> FastAPI:
    """Return the FastAPI application of a server.

    Args:
        parts: The components of the server, such as the reader and the writer of its store. Without
            them, the application can only return its OpenAPI document.
        intake: Limits the number of recording requests in progress. The default is a new
            `Intake`.
        access: Decides which callers may use the server. By default, the authenticator of `parts`
            decides.
        stream_settings: Limits and waiting times of the event streams of runs.
        metrics: The server's counters. The default is a new `Metrics`.
    """
    if access is None:
        access = Access(authenticator=None if parts is None else parts.authenticator)
    metrics = metrics or Metrics()
    app = FastAPI(
        title="Tracer",
        version="1",
        summary="Records what an LLM agent did, and which tool call opened which sub-plan.",
        # The viewer owns the paths that a browser sees; the document is at /openapi.json.
        docs_url=None,
        redoc_url=None,
        # FastAPI's own handler would report paths and bodies to whatever traces this process.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        generate_unique_id_function=_operation_id,
        # The outermost middleware first.
        middleware=[
            Middleware(RequestLog, metrics=metrics),
            Middleware(ResponseHeaders),
            *(
                [Middleware(OtlpOrigins, origins=origins)]
                if (origins := access.otlp_origins)
                else []
            ),
            Middleware(ErrorResponses),
            Middleware(UnknownPages),
            Middleware(Authentication, access=access),
            Middleware(BodyLimit),
            Middleware(Compression),
            Middleware(ETags),
        ],
    )
    app.state.parts = parts
    app.state.intake = intake or Intake()
    app.state.stream_settings = stream_settings
    app.state.metrics = metrics
    app.state.access = access
    problems.install(app, [*health.router.routes, *ALL_ROUTES])
    app.router.routes[:0] = PLAIN_ROUTES
    app.include_router(health.router)
    for router in ROUTERS:
        app.include_router(
            router,
            dependencies=[Depends(name_lineage), Depends(refuse_unknown_parameters)],
            responses=problems.COMMON_PROBLEMS,
        )
    app.add_route(plans.SEED_PATH, plans.redirect_to_tree, include_in_schema=False)
    viewer.mount(app)
    app.openapi = partial(_openapi_document, app)  # type: ignore[method-assign]
    return app


def _openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document, with schemas that FastAPI cannot derive from the routes."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        schema = problems.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        document["components"]["schemas"] |= {
            **event_components(),
            **components(
                PlanNode, ChangedRecords, RunRevision, RunDiff, *questions.ANSWER_TYPES.values()
            ),
            "Problem": schema,
        }
        document_security(document, ALL_ROUTES)
        app.openapi_schema = document
    return app.openapi_schema


def _operation_id(route: APIRoute) -> str:
    return route.name
