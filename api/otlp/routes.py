"""Routes for OTLP over HTTP, which receive data from any program that uses OpenTelemetry."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import replace
from http import HTTPStatus
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request, Response

from api.dependencies import (
    MetricsDep,
    Projection,
    Recording,
    RecordingIntake,
    Writer,
    parts_of,
)
from api.http.intake import Intake
from api.http.log_entry import note_problem
from api.http.problems import problem_of
from api.http.request_bodies import admitted_body, media_type
from api.observability.metrics import Metrics
from api.otlp.dropped_metrics import NOTICE
from api.otlp.encodings import (
    LOGS,
    LOGS_BODY,
    METRICS,
    METRICS_BODY,
    TRACES,
    TRACES_BODY,
    Encoding,
    Received,
    answers,
)
from tracer.errors import TracerError
from tracer.otel.otlp.request_items import Decoded
from tracer.otel.otlp.span_fields import root_plan_id
from tracer.records.record_classes import Kind
from tracer.store import Refusal, SpanProjection, TraceWriter

MAX_BYTES = 64 * 2**20
"""The largest accepted body in bytes, after decompression."""

MAX_DECODED_BYTES = 4 * MAX_BYTES
"""The largest amount of memory for decoded items. It can exceed the size of the body, because each
decoded item includes its resource and scope."""

SMALL_BYTES = 16 * 2**10
"""Smaller bodies are decoded in less time than a switch to a thread takes."""

MAX_WAIT_SECONDS = 30

_PREFER: dict[str, Any] = {
    "name": "prefer",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "`wait=5`: answer when the records exist, after that many "
    f"seconds at the latest (RFC 7240). At most {MAX_WAIT_SECONDS} seconds.",
    "example": "wait=5",
}
"""The header `Prefer` (RFC 7240) in the OpenAPI document."""

_WAIT = re.compile(r'\s*wait\s*=\s*"?([0-9]{1,9})"?\s*(?:;.*)?', re.IGNORECASE)

router = APIRouter(prefix="/v1", tags=["traces"])

_STATUSES = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_COMMITTED = "all items that it does not name are committed."


@router.post(
    "/traces",
    response_class=Response,
    openapi_extra={"requestBody": TRACES_BODY, "parameters": [_PREFER]},
    responses=answers("ExportTraceServiceResponse", "rejectedSpans", _COMMITTED, *_STATUSES),
)
async def record_traces(
    request: Request,
    writer: Writer,
    projection: Projection,
    intake: RecordingIntake,
    metrics: MetricsDep,
) -> Response:
    """Record OpenTelemetry spans. Each span is stored or rejected independently of the others.

    All stored spans are committed before the response. The body may be compressed
    (`Content-Encoding: gzip` or `deflate`). It is safe to send a request again.

    The server converts spans to records shortly after the response. To wait for the records, send
    the header `Prefer: wait=5` (RFC 7240; the unit is seconds, the maximum is 30). If all records
    exist in time, the response has the header `Preference-Applied`.
    """
    return await record(request, TRACES, writer, projection, intake, metrics)


@router.post(
    "/logs",
    response_class=Response,
    openapi_extra={"requestBody": LOGS_BODY, "parameters": [_PREFER]},
    responses=answers("ExportLogsServiceResponse", "rejectedLogRecords", _COMMITTED, *_STATUSES),
)
async def record_logs(
    request: Request,
    writer: Writer,
    projection: Projection,
    intake: RecordingIntake,
    metrics: MetricsDep,
) -> Response:
    """Record OpenTelemetry log records. The rules of `POST /v1/traces` apply.

    A log record belongs to the run of its trace. If it has no trace id, it must come from a
    supported agent program and contain the id of a session. Otherwise it is rejected.
    """
    return await record(request, LOGS, writer, projection, intake, metrics)


@router.post(
    "/metrics",
    response_class=Response,
    openapi_extra={"requestBody": METRICS_BODY},
    responses=answers(
        "ExportMetricsServiceResponse",
        "rejectedDataPoints",
        "the data points are not stored.",
        *_STATUSES,
    ),
)
async def drop_metrics(
    request: Request, caller: Recording, intake: RecordingIntake, metrics: MetricsDep
) -> Response:
    """Accept OpenTelemetry metrics, count their data points and drop them.

    Because metrics are accepted, exporters that send all signals report no errors. The first such
    response after a server starts says that data points are not stored.
    """
    return await record(request, METRICS, None, None, intake, metrics)


async def record(
    request: Request,
    received: Received,
    writer: TraceWriter | None,
    projection: SpanProjection | None,
    intake: Intake,
    metrics: Metrics,
) -> Response:
    """Answer an OTLP request with traces, logs or metrics.

    If `writer` is None, the items of the request are counted and dropped.
    """
    encoding = Encoding.of(media_type(request), received)
    try:
        count, refused, runs = await _accept(request, encoding, writer, intake)
    except TracerError as error:
        status, code = problem_of(error)
        note_problem(request.scope, code)
        is_passing = status is HTTPStatus.SERVICE_UNAVAILABLE
        return encoding.failure(status, str(error), {"Retry-After": "1"} if is_passing else None)
    if writer is None:
        return encoding.success(count, (), NOTICE if metrics.note_dropped(count) else "")
    metrics.note_ingest(received.source, count - len(refused), refused)
    answer = encoding.success(count, refused)
    seconds = _preferred_wait(request)
    if projection is None or seconds is None:
        return answer
    if await _await_projection(projection, runs, seconds):
        answer.headers["Preference-Applied"] = f"wait={seconds}"
    return answer


async def _accept(
    request: Request, encoding: Encoding, writer: TraceWriter | None, intake: Intake
) -> tuple[int, list[Refusal], list[UUID]]:
    """Store the items of a request, and free the memory of its body.

    Returns:
        The number of items in the request, the rejected items with their indexes, and the ids of
        the runs that the items belong to.
    """
    backlog, project_id = (await parts_of(request)).backlog, request.state.caller.project_id
    if backlog is not None and writer is not None:
        backlog.check(project_id)
    with admitted_body(request, intake, MAX_BYTES) as (parts, share):
        body = b"".join([part async for part in parts])
        if len(body) < SMALL_BYTES:
            decoded = encoding.decode(body, MAX_DECODED_BYTES)
        else:
            async with intake.turn(len(body)):
                decoded = await asyncio.to_thread(encoding.decode, body, MAX_DECODED_BYTES)
        del body
        if writer is None:
            return decoded.count, [], []
        share.hold(decoded.size)
        refused = await _write(writer, encoding.received.code, decoded)
        if backlog is not None:
            backlog.add(project_id, sum(len(trace.message) for trace in decoded.traces))
        return decoded.count, refused, [root_plan_id(each.trace_id) for each in decoded.traces]


async def _write(writer: TraceWriter, code: str, decoded: Decoded) -> list[Refusal]:
    """Store the items. Return the rejected items with their indexes in the request."""
    refused = [Refusal(each.index, code, each.reason) for each in decoded.refused]
    answer = await writer.write_spans(decoded.traces)
    refused += [replace(each, index=decoded.places[each.index]) for each in answer.refused]
    return sorted(refused, key=lambda each: each.index)


def _preferred_wait(request: Request) -> int | None:
    """Return the seconds in the header `Prefer: wait=…`, at most `MAX_WAIT_SECONDS`.

    Return None if the request has no such preference. If it has several, the first one counts.
    Malformed preferences are ignored (RFC 7240, section 2).
    """
    for preference in ",".join(request.headers.getlist("prefer")).split(","):
        if (wait := _WAIT.fullmatch(preference)) is not None:
            return min(int(wait[1]), MAX_WAIT_SECONDS)
    return None


async def _await_projection(
    projection: SpanProjection, run_ids: Iterable[UUID], seconds: int
) -> bool:
    """Wait until the accepted spans of these runs are converted to records.

    Return False if this takes longer than `seconds`.
    """
    time = asyncio.get_running_loop().time
    end = time() + seconds
    for run_id in run_ids:
        left = max(0.0, end - time())
        if await projection.catch_up(Kind.RUN, run_id, seconds=left):
            return False
    return True
