"""The route that returns the server's metrics for Prometheus."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Response

from api.dependencies import AllParts, MetricsDep, Reading
from api.http.problems import documented
from api.observability.metrics import MEDIA_TYPE
from api.observability.server_metrics import server_metrics
from tracer.errors import NotAllowed

router = APIRouter(tags=["health"])

TEXT = {"content": {"text/plain": {"schema": {"type": "string"}}}}


@router.get(
    "/metrics",
    response_class=Response,
    responses={HTTPStatus.OK.value: TEXT, **documented(HTTPStatus.FORBIDDEN)},
)
async def read_metrics(parts: AllParts, caller: Reading, metrics: MetricsDep) -> Response:
    """Return the server's metrics in Prometheus's text format.

    The metrics cover all projects, so only keys of the server's own project may read them.
    """
    if caller.project_id != parts.project_id:
        raise NotAllowed("Only keys of the server's own project may read its metrics.")
    return Response(metrics.text(await server_metrics(parts)), media_type=MEDIA_TYPE)
