"""Decode OTLP log requests. A log record that cannot be stored is rejected by itself."""

from __future__ import annotations

from dataclasses import replace

from tracer.otel.otlp.decode_json import decode_json
from tracer.otel.otlp.decode_protobuf import decode_protobuf
from tracer.otel.otlp.request_items import Decoded
from tracer.otel.otlp.signals import LOGS, SessionOf


def decode_logs_protobuf(
    body: bytes, max_size: int | None = None, session_of: SessionOf | None = None
) -> Decoded:
    """Return the log records of an `ExportLogsServiceRequest`, as `decode_protobuf` does.

    Args:
        body: The serialized request.
        max_size: How much memory its records may take, in bytes; None: any amount.
        session_of: Finds the session of a record without a trace id. Such records get the id of
            the session's run; None: they are rejected.
    """
    return decode_protobuf(body, max_size, replace(LOGS, session_of=session_of))


def decode_logs_json(
    body: bytes, max_size: int | None = None, session_of: SessionOf | None = None
) -> Decoded:
    """Return the log records of an OTLP/JSON request, as `decode_logs_protobuf` does."""
    return decode_json(body, max_size, replace(LOGS, session_of=session_of))
