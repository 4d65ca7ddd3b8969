"""OTLP over HTTP: decode requests, and answer in the encoding of the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import Response
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tracer.otel.otlp.decode_json import decode_json
from tracer.otel.otlp.decode_protobuf import decode_protobuf
from tracer.otel.otlp.protobuf import bytes_field
from tracer.otel.otlp.request_spans import Decoded
from tracer.store import Refusal

_SHOWN_REASONS = 10
"""How many reasons an answer gives: there may be as many as spans."""

_STATUS_MESSAGE = 2


@dataclass(frozen=True)
class Encoding:
    """How a client writes its requests and reads the answers."""

    media_type: str
    decode: Callable[[bytes, int], Decoded]
    _response: Callable[[ExportTraceServiceResponse], bytes]
    _status: Callable[[str], bytes]

    def success(self, count: int, refused: Sequence[Refusal]) -> Response:
        """Return an `ExportTraceServiceResponse`: of a partial success where spans were refused.

        Args:
            count: How many spans the request has.
            refused: Those that were not stored, by their places in the request.
        """
        message = ExportTraceServiceResponse()
        if refused:
            message.partial_success.rejected_spans = len(refused)
            message.partial_success.error_message = _reasons(count, refused)
        return Response(self._response(message), media_type=self.media_type)

    def failure(
        self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Return a `google.rpc.Status` that says what is wrong."""
        return Response(
            self._status(detail), status.value, headers=headers, media_type=self.media_type
        )


def _reasons(count: int, refused: Sequence[Refusal]) -> str:
    """Return each code and its sentence; `HttpWriter` reads those of a single span."""
    reasons = [
        f"{each.code}: {each.detail}" + (f" (span {each.index})" if count > 1 else "")
        for each in refused[:_SHOWN_REASONS]
    ]
    left_out = len(refused) - len(reasons)
    return "\n".join([*reasons, f"And {left_out} more."] if left_out else reasons)


def _json_of(message: ExportTraceServiceResponse) -> bytes:
    return orjson.dumps(json_format.MessageToDict(message))


ENCODINGS: Mapping[str, Encoding] = {
    encoding.media_type: encoding
    for encoding in (
        Encoding(
            "application/x-protobuf",
            decode_protobuf,
            ExportTraceServiceResponse.SerializeToString,
            lambda detail: bytes_field(_STATUS_MESSAGE, detail.encode()),
        ),
        Encoding(
            "application/json",
            decode_json,
            _json_of,
            lambda detail: orjson.dumps({"message": detail}),
        ),
    )
}
"""The encodings by their media types."""


TRACES_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/x-protobuf": {
            "schema": {
                "type": "string",
                "format": "binary",
                "description": "A serialized `ExportTraceServiceRequest`.",
            }
        },
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {
                    "resourceSpans": {"type": ["array", "null"], "items": {"type": "object"}}
                },
                "description": "The same as OTLP/JSON: hex ids, lowerCamelCase names.",
            },
            "example": {
                "resourceSpans": [
                    {
                        "scopeSpans": [
                            {
                                "spans": [
                                    {
                                        "traceId": "5b8efff798038103d269b633813fc60c",
                                        "spanId": "eee19b7ec3c1b174",
                                        "name": "invoke_agent planner",
                                        "startTimeUnixNano": "1763763712462812000",
                                        "endTimeUnixNano": "1763763713462812000",
                                    }
                                ]
                            }
                        ]
                    }
                ]
            },
        },
    },
}
"""The request body in the OpenAPI document: the endpoint reads it itself."""


def answers(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of the answers: the success, and what may be wrong."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    problem = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        HTTPStatus.OK.value: {
            "description": "An `ExportTraceServiceResponse`; what it does not name is committed.",
            "content": {
                "application/x-protobuf": binary,
                "application/json": {
                    "schema": {
                        "type": "object",
                        "properties": {
                            "partialSuccess": {
                                "type": "object",
                                "properties": {
                                    "rejectedSpans": {"type": "string"},
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
                    "application/x-protobuf": binary,
                    "application/json": {
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
