"""OTLP over HTTP: decode requests, and answer in the encoding of the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import Response
from google.protobuf import json_format
from google.rpc.status_pb2 import Status

from tracer.errors import UnknownFormat
from tracer.otel.dialects import session_of
from tracer.otel.otlp import signals
from tracer.otel.otlp.decode_json import decode_json
from tracer.otel.otlp.decode_logs import decode_logs_json, decode_logs_protobuf
from tracer.otel.otlp.decode_protobuf import decode_protobuf
from tracer.otel.otlp.request_items import Decoded
from tracer.otel.otlp.signals import SPANS
from tracer.store import Refusal

_SHOWN_REASONS = 10
"""The largest number of reasons in a response. Every rejected span may have its own reason."""

PROTOBUF, JSON = "application/x-protobuf", "application/json"

Decode = Callable[[bytes], Decoded]


@dataclass(frozen=True)
class Received:
    """One of the OpenTelemetry signals that the server stores: traces or logs."""

    source: str
    """The signal's name in metrics."""
    item: str
    """The word for one item in messages, such as `span`."""
    code: str
    """The error code for an item that cannot be stored."""
    decoders: Mapping[str, Decode]
    """The decoder of each media type."""
    response_type: Any
    rejected: str
    """The field of a partial success that counts rejected items."""

    def answer(self, count: int, refused: Sequence[Refusal]) -> Any:
        """Return the OTLP response. If items were rejected, it is a partial success.

        Args:
            count: The number of items in the request.
            refused: The rejected items, with their indexes in the request.
        """
        message = self.response_type()
        if refused:
            setattr(message.partial_success, self.rejected, len(refused))
            message.partial_success.error_message = _reasons(self.item, count, refused)
        return message


TRACES = Received(
    source="spans",
    item=SPANS.item,
    code="invalid_span",
    decoders={PROTOBUF: decode_protobuf, JSON: decode_json},
    response_type=SPANS.response_type,
    rejected=SPANS.rejected,
)
LOGS = Received(
    source="logs",
    item=signals.LOGS.item,
    code="invalid_log_record",
    decoders={
        PROTOBUF: partial(decode_logs_protobuf, session_of=session_of),
        JSON: partial(decode_logs_json, session_of=session_of),
    },
    response_type=signals.LOGS.response_type,
    rejected=signals.LOGS.rejected,
)


@dataclass(frozen=True)
class Encoding:
    """The encoding of a request and its response: protobuf or JSON, for one signal."""

    media_type: str
    received: Received

    @classmethod
    def of(cls, media_type: str, received: Received) -> Encoding:
        """Return the encoding of a request.

        Raises:
            UnknownFormat: The media type is not supported.
        """
        check_media_type(media_type)
        return cls(media_type, received)

    @property
    def decode(self) -> Decode:
        """The function that decodes requests in this encoding."""
        return self.received.decoders[self.media_type]

    def success(self, count: int, refused: Sequence[Refusal]) -> Response:
        """Return `Received.answer` in this encoding."""
        message = self.received.answer(count, refused)
        content = (
            message.SerializeToString()
            if self.media_type == PROTOBUF
            else orjson.dumps(json_format.MessageToDict(message))
        )
        return Response(content, media_type=self.media_type)

    def failure(
        self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Return a `google.rpc.Status` that describes the error."""
        content = (
            Status(message=detail).SerializeToString()
            if self.media_type == PROTOBUF
            else orjson.dumps({"message": detail})
        )
        return Response(content, status.value, headers=headers, media_type=self.media_type)


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


def _body(request: str, field: str, example: dict[str, Any]) -> dict[str, Any]:
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
                "example": {field: [example]},
            },
        },
    }


_TRACE_ID, _SPAN_ID = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"

TRACES_BODY = _body(
    "ExportTraceServiceRequest",
    "resourceSpans",
    {
        "scopeSpans": [
            {
                "spans": [
                    {
                        "traceId": _TRACE_ID,
                        "spanId": _SPAN_ID,
                        "name": "invoke_agent planner",
                        "startTimeUnixNano": "1763763712462812000",
                        "endTimeUnixNano": "1763763713462812000",
                    }
                ]
            }
        ]
    },
)
LOGS_BODY = _body(
    "ExportLogsServiceRequest",
    "resourceLogs",
    {
        "scopeLogs": [
            {
                "logRecords": [
                    {
                        "traceId": _TRACE_ID,
                        "spanId": _SPAN_ID,
                        "timeUnixNano": "1763763712462812000",
                        "eventName": "gen_ai.user.message",
                        "body": {"stringValue": "Check the vital signs of bed 3."},
                    }
                ]
            }
        ]
    },
)
METRICS_BODY = _body(
    "ExportMetricsServiceRequest",
    "resourceMetrics",
    {"scopeMetrics": [{"metrics": [{"name": "tokens", "sum": {"dataPoints": [{"asInt": "5"}]}}]}]},
)


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
