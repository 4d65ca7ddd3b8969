"""Metrics: what Prometheus asks for."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Response

from api.dependencies import AllParts, Measures, Reading
from api.http.problems import documented
from api.observability.metrics import MEDIA_TYPE
from api.observability.server_metrics import server_figures
from tracer.errors import NotAllowed

router = APIRouter(tags=["health"])

TEXT = {"content": {"text/plain": {"schema": {"type": "string"}}}}


@router.get(
    "/metrics",
    response_class=Response,
    responses={HTTPStatus.OK.value: TEXT, **documented(HTTPStatus.FORBIDDEN)},
)
async def read_metrics(parts: AllParts, caller: Reading, metrics: Measures) -> Response:
    """Return what the server counts of itself, in Prometheus's text format.

    The figures are of all projects together, so they are for keys of the server's own project.
    """
    if caller.project_id != parts.project_id:
        raise NotAllowed("The figures of this server are for keys of its own project.")
    return Response(metrics.text(await server_figures(parts)), media_type=MEDIA_TYPE)
