"""Routes for OTLP over HTTP, which receive data from any program that uses OpenTelemetry."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Request, Response
from google.protobuf import json_format
from google.rpc.status_pb2 import Status

from api.dependencies import (
    Allowed,
    PlainRoute,
    Recording,
    RecordingIntake,
    intake_of,
    metrics_of,
    parts_of,
    projection_for,
    writer_for,
)
from api.metrics import Metrics
from api.parts import Backlog
from api.problems import note_problem, problem_of
from api.requests import Intake, admitted_body, media_type
from tracer.errors import TooBusy, TracerError, UnknownFormat
from tracer.otel import otlp
from tracer.otel.dialects import session_of
from tracer.otel.otlp import (
    NO_SESSION,
    Decoded,
    decode_json,
    decode_logs_json,
    decode_logs_protobuf,
    decode_protobuf,
)
from tracer.otel.otlp.spans import root_plan_id
from tracer.records import Kind
from tracer.records.access import Scope
from tracer.store import Refusal, SpanProjection, TraceWriter

# --- OTLP over HTTP: decode requests, and answer in the encoding of the request.

UNREAD = "unread_log_record"
"""The code, in metrics only, of log records without a trace that no dialect reads. They are not
stored. Clients get no message, because many programs export all of their log records."""

_SHOWN_REASONS = 10
"""The largest number of reasons in a response. Every rejected span may have its own reason."""

PROTOBUF, JSON = "application/x-protobuf", "application/json"

Decode = Callable[[bytes], Decoded]


@dataclass(frozen=True)
class Received:
    """One of the OpenTelemetry signals that the server stores: traces or logs."""

    source: str
    """The signal's name in metrics."""
    signal: otlp.Signal
    code: str
    """The error code for an item that cannot be stored."""
    decoders: Mapping[str, Decode]
    """The decoder of each media type."""

    def answer(self, accepted: Accepted) -> Any:
        """Return the OTLP response. If items were rejected, it is a partial success."""
        message = self.signal.response_type()
        refused = [each for each in accepted.refused if each.code != UNREAD]
        if refused:
            setattr(message.partial_success, self.signal.rejected, len(refused))
            reasons = _reasons(self.signal.item, accepted.count, refused)
            message.partial_success.error_message = reasons
        return message


TRACES = Received(
    "spans", otlp.SPANS, "invalid_span", {PROTOBUF: decode_protobuf, JSON: decode_json}
)
LOGS = Received(
    "logs",
    otlp.LOGS,
    "invalid_log_record",
    {
        PROTOBUF: partial(decode_logs_protobuf, session_of=session_of),
        JSON: partial(decode_logs_json, session_of=session_of),
    },
)


def _response(
    message: Any,
    media_type: str,
    status: HTTPStatus = HTTPStatus.OK,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a protobuf message as a response in one of the encodings of OTLP."""
    if media_type == PROTOBUF:
        content = message.SerializeToString()
    else:
        content = orjson.dumps(json_format.MessageToDict(message))
    return Response(content, status.value, headers=headers, media_type=media_type)


def check_media_type(media_type: str) -> None:
    """Raise `UnknownFormat` if the media type is none of OTLP over HTTP."""
    if media_type not in (PROTOBUF, JSON):
        raise UnknownFormat(f"Send OTLP with one of the Content-Types {PROTOBUF}, {JSON}.")


def _reasons(item: str, count: int, refused: Sequence[Refusal]) -> str:
    """Return the code and the detail of each rejected item, one item per line.

    Do not change the format: if the request has one item, `HttpWriter` parses this text.
    """
    reasons = [
        f"{each.code}: {each.detail}" + (f" ({item} {each.index})" if count > 1 else "")
        for each in refused[:_SHOWN_REASONS]
    ]
    left_out = len(refused) - len(reasons)
    return "\n".join([*reasons, f"And {left_out} more."] if left_out else reasons)


# --- OpenAPI -------------------------------------------------------------------------------------


def _body(request: str, field: str) -> dict[str, Any]:
    """Return the description of a request body for the OpenAPI document.

    FastAPI cannot derive the description, because the endpoint itself reads the body.
    """
    return {
        "required": True,
        "content": {
            PROTOBUF: {
                "schema": {
                    "type": "string",
                    "format": "binary",
                    "description": f"A serialized `{request}`.",
                }
            },
            JSON: {
                "schema": {
                    "type": "object",
                    "properties": {field: {"type": ["array", "null"], "items": {"type": "object"}}},
                    "description": "The same as OTLP/JSON: hex ids, lowerCamelCase names.",
                },
            },
        },
    }


METRICS_BODY = _body("ExportMetricsServiceRequest", "resourceMetrics")
# The body is not read, so any JSON is accepted.
METRICS_BODY["content"][JSON]["schema"] = {
    "properties": {"resourceMetrics": {}},
    "description": "The same as OTLP/JSON.",
}


def answers(
    response: str, rejected: str, meaning: str, *statuses: HTTPStatus
) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of a route's responses: the success and the errors."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        HTTPStatus.OK.value: {
            "description": f"An `{response}`; {meaning}",
            "content": {
                PROTOBUF: binary,
                JSON: {
                    "schema": {
                        "type": "object",
                        "properties": {
                            "partialSuccess": {
                                "type": "object",
                                "properties": {
                                    rejected: {"type": "string"},
                                    "errorMessage": {"type": "string"},
                                },
                            }
                        },
                    }
                },
            },
        },
        **{
            status.value: {
                "description": f"{status.phrase}: a `google.rpc.Status` in the request's encoding.",
                "content": {
                    PROTOBUF: binary,
                    JSON: {
                        "schema": {
                            "type": "object",
                            "required": ["message"],
                            "properties": {"message": {"type": "string"}},
                        }
                    },
                    "application/problem+json": problem,
                },
            }
            for status in statuses
        },
    }


# --- Routes for OTLP over HTTP, which receive data from any program that uses OpenTelemetry.

MAX_BYTES = 64 * 2**20
"""The largest accepted body in bytes, after decompression."""

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


async def record_traces(request: Request) -> Response:
    """Record OpenTelemetry spans. Each span is stored or rejected independently of the others.

    All stored spans are committed before the response. The body may be compressed
    (`Content-Encoding: gzip`, `zstd` or `deflate`). It is safe to send a request again.

    The server converts spans to records shortly after the response. To wait for the records, send
    the header `Prefer: wait=5` (RFC 7240; the unit is seconds, the maximum is 30). If all records
    exist in time, the response has the header `Preference-Applied`.
    """
    return await _record(request, TRACES)


async def record_logs(request: Request) -> Response:
    """Record OpenTelemetry log records. The rules of `POST /v1/traces` apply.

    A log record belongs to the run of its trace. A record without a trace id belongs to its
    session, if it comes from a supported agent program and contains the session's id. All other
    records without a trace id are accepted, counted in the metrics, and not stored.
    """
    return await _record(request, LOGS)


PLAIN_ROUTES = (
    PlainRoute(
        "POST",
        "/v1/traces",
        record_traces,
        Allowed(Scope.RECORD),
        answers("ExportTraceServiceResponse", "rejectedSpans", _COMMITTED, *_STATUSES),
        tags=router.tags,
        response_class=Response,
        openapi_extra={
            "requestBody": _body("ExportTraceServiceRequest", "resourceSpans"),
            "parameters": [_PREFER],
        },
    ),
    PlainRoute(
        "POST",
        "/v1/logs",
        record_logs,
        Allowed(Scope.RECORD),
        answers("ExportLogsServiceResponse", "rejectedLogRecords", _COMMITTED, *_STATUSES),
        tags=router.tags,
        response_class=Response,
        openapi_extra={
            "requestBody": _body("ExportLogsServiceRequest", "resourceLogs"),
            "parameters": [_PREFER],
        },
    ),
)
"""The OpenTelemetry routes that record."""


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
async def drop_metrics(request: Request, caller: Recording, intake: RecordingIntake) -> Response:
    """Accept OpenTelemetry metrics without parsing them. They are not stored.

    Because metrics are accepted, exporters that send all signals report no errors.
    """
    check_media_type(kind := media_type(request))
    async with admitted_body(request, intake, MAX_BYTES) as parts:
        async for _ in parts:  # a client may wait until all of its request is received
            pass
    return Response(b"" if kind == PROTOBUF else b"{}", media_type=kind)


async def _record(request: Request, received: Received) -> Response:
    check_media_type(kind := media_type(request))
    parts, caller = await parts_of(request), request.state.caller
    writer, projection = await writer_for(parts, caller), await projection_for(parts, caller)
    intake, metrics = await intake_of(request), await metrics_of(request)
    try:
        check_backlog(parts.backlog)
        async with admitted_body(request, intake, MAX_BYTES) as body_parts:
            body = b"".join([part async for part in body_parts])
            accepted = await accept(body, received, kind, writer, intake, metrics)
    except TracerError as error:
        status, code = problem_of(error)
        note_problem(request.scope, code)
        is_passing = status is HTTPStatus.SERVICE_UNAVAILABLE
        headers = {"Retry-After": "1"} if is_passing else None
        return _response(Status(message=str(error)), kind, status, headers)
    answer = _response(received.answer(accepted), kind)
    seconds = _preferred_wait(request)
    if projection is None or seconds is None:
        return answer
    if await _await_projection(projection, accepted.runs, seconds):
        answer.headers["Preference-Applied"] = f"wait={seconds}"
    return answer


@dataclass(frozen=True)
class Accepted:
    """The stored and the rejected items of a request."""

    count: int
    """The number of items in the request."""
    refused: list[Refusal]
    """The rejected items, with their indexes in the request."""
    runs: list[UUID]
    """The ids of the runs that the items belong to."""


def check_backlog(backlog: Backlog | None) -> None:
    """Raise `TooBusy` if too many accepted spans wait for a projector."""
    if backlog is not None and backlog.figures.size > backlog.max_bytes:
        raise TooBusy(
            f"The server has {backlog.figures.size} bytes of spans that are not projected yet; "
            f"its limit is {backlog.max_bytes}. Send the request again later."
        )


async def accept(
    body: bytes,
    received: Received,
    media_type: str,
    writer: TraceWriter,
    intake: Intake,
    metrics: Metrics,
) -> Accepted:
    """Store the items of a request, and count them."""
    decode = received.decoders[media_type]
    if len(body) < SMALL_BYTES:
        decoded = decode(body)
    else:
        async with intake.turn(len(body)):
            decoded = await asyncio.to_thread(decode, body)
    del body
    refused = [
        Refusal(each.index, UNREAD if each.reason is NO_SESSION else received.code, each.reason)
        for each in decoded.refused
    ]
    answer = await writer.write_spans(decoded.traces)
    refused += [replace(each, index=decoded.indexes[each.index]) for each in answer.refused]
    refused.sort(key=lambda each: each.index)
    metrics.note_ingest(received.source, decoded.count - len(refused), refused)
    runs = [root_plan_id(each.trace_id) for each in decoded.traces]
    return Accepted(decoded.count, refused, runs)


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
