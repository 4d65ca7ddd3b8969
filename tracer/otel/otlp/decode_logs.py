"""Decode OTLP log requests.

A log record that cannot be stored is rejected. The other records of the request are accepted.
"""

from __future__ import annotations

from dataclasses import replace

from tracer.otel.otlp.decode_json import decode_json
from tracer.otel.otlp.decode_protobuf import decode_protobuf
from tracer.otel.otlp.request_items import Decoded
from tracer.otel.otlp.signals import LOGS, SessionOf


def decode_logs_protobuf(body: bytes, session_of: SessionOf | None = None) -> Decoded:
    """Return the log records of a serialized `ExportLogsServiceRequest`.

    Raises the same errors as `decode_protobuf`.

    Args:
        body: The serialized request.
        session_of: A function that returns the session of a log record. A record without a trace id
            is stored in the run of its session (`session_run_id`). If this argument is None, such a
            record is rejected.
    """
    return decode_protobuf(body, replace(LOGS, session_of=session_of))


def decode_logs_json(body: bytes, session_of: SessionOf | None = None) -> Decoded:
    """Return the log records of an OTLP/JSON request.

    The arguments are those of `decode_logs_protobuf`. Raises the same errors as `decode_json`.
    """
    return decode_json(body, replace(LOGS, session_of=session_of))
