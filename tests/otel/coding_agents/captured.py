"""Captures of coding agents: spans and log records as stored messages, whole or one by one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from tests.otel.projections import Projected, message_of, project_messages
from tracer.otel.dialects import session_of
from tracer.otel.otlp import (
    Decoded,
    decode_json,
    decode_logs_json,
    decode_logs_protobuf,
    decode_protobuf,
)
from tracer.otel.otlp.blocks import sent_spans
from tracer.otel.otlp.spans import EPOCH, StoredMessage, encode_logs, logs_in

CAPTURES = Path(__file__).parent / "captures"

Message = tuple[bytes, bytes]
"""A trace id, and spans or log records of that trace as a stored message. Log records without a
trace have the id of their session's run."""

_DECODERS: dict[tuple[str, bool], Callable[[bytes], Decoded]] = {
    ("traces", False): decode_protobuf,
    ("traces", True): decode_json,
    ("logs", False): partial(decode_logs_protobuf, session_of=session_of),
    ("logs", True): partial(decode_logs_json, session_of=session_of),
}


def messages_of(name: str, *signals: str) -> list[Message]:
    """Return the messages of a capture in the order in which they arrived.

    Args:
        name: The name of the capture.
        signals: "traces", "logs"; both if none is named.
    """
    folder = CAPTURES / name
    found: list[Message] = []
    for sent in json.loads((folder / "requests.json").read_text()):
        signal = sent["path"].rpartition("/")[2]
        if signal == "metrics" or (signals and signal not in signals):
            continue
        is_json = "json" in sent["headers"]["content-type"]
        decoded = _DECODERS[signal, is_json](_body(folder / sent["file"]))
        found += [(trace.trace_id, trace.message) for trace in decoded.traces]
    return found


def _body(path: Path) -> bytes:
    packed = path.with_name(path.name + ".gz")
    return gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()


def single(messages: Iterable[Message]) -> list[Message]:
    """Return each span and each log record in a message of its own."""
    found: list[Message] = []
    for trace_id, message in messages:
        found += [(trace_id, message_of(span)) for span in sent_spans(message)]
        logs = logs_in(StoredMessage.FromString(message))
        found += [(trace_id, encode_logs([record])) for record in logs]
    return found


def projected(messages: Iterable[Message]) -> list[Projected]:
    """Return the runs that are agent work, by their start."""
    by_trace: dict[bytes, list[bytes]] = {}
    for trace_id, message in messages:
        by_trace.setdefault(trace_id, []).append(message)
    runs = []
    for trace_id, each in by_trace.items():
        run = project_messages(each)
        others = [
            message
            for session in sorted(run.sessions - {trace_id})
            for message in by_trace.get(session, ())
        ]
        runs.append(project_messages(each, others) if others else run)
    return sorted(
        (run for run in runs if run.is_agent_work),
        key=lambda run: (run.whole_run["started_at"] or EPOCH, run.root_plan_id),
    )


def truth_of(name: str) -> dict[str, Any]:
    """Return the content of `expected.json`."""
    truth: dict[str, Any] = json.loads((CAPTURES / name / "expected.json").read_text())
    return truth
