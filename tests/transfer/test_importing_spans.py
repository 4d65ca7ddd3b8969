"""Imported spans are written as one message per trace; rejections name the line of the file."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import pytest

from tests.contract.transfers import import_into
from tests.otel.captured import moved
from tests.otel.decoded import spans_of_traces
from tests.otel.made_traces import made, spans_from
from tracer.otel.otlp.blocks import TraceSpans
from tracer.otel.otlp.encode import encode_json, encode_protobuf
from tracer.otel.otlp.span_fields import root_plan_id
from tracer.otel.otlp.spans import Span
from tracer.storage.memory.store import MemoryStore
from tracer.store import WriteAnswer
from tracer.transfer import files
from tracer.transfer.importing import Imported

OTHER = b"another trace 16"


class Noting(MemoryStore):
    """A store that notes the spans of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Sequence[TraceSpans]] = []

    async def write_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
        self.calls.append(traces)
        return await super().write_spans(traces)


def interleaved() -> list[Span]:
    """Return the spans of two traces, by turns."""
    spans = spans_from(*(made(number, "a span") for number in range(1, 8)))
    return [moved(span, OTHER) if place % 2 else span for place, span in enumerate(spans)]


def as_lines(spans: list[Span]) -> bytes:
    lines = [
        {"kind": "span", "resourceSpans": base64.b64encode(span.body).decode()} for span in spans
    ]
    return b"\n".join(json.dumps(line).encode() for line in lines)


FORMS = {"lines": as_lines, "protobuf": encode_protobuf, "json": encode_json}


@pytest.mark.parametrize("form", FORMS)
async def test_span_import_batch_has_one_message_per_trace(form: str) -> None:
    store, spans = Noting(), interleaved()

    imported = await import_into(store, FORMS[form](spans))

    [traces] = store.calls
    assert [(each.trace_id, each.count) for each in traces] == [
        (spans[0].trace_id, 4),
        (OTHER, 3),
    ]
    assert spans_of_traces(traces) == [*spans[::2], *spans[1::2]]
    assert imported == Imported({root_plan_id(each) for each in (spans[0].trace_id, OTHER)}, 0, 7)


async def test_rejected_spans_are_reported_with_their_lines() -> None:
    store, spans = Noting(), interleaved()
    await import_into(store, as_lines(spans))
    await store.delete_run(root_plan_id(OTHER))

    imported = await import_into(store, as_lines(spans))

    assert (imported.spans, imported.refused) == (4, 3)
    assert imported.runs == {root_plan_id(spans[0].trace_id)}
    assert [reason.partition(":")[0] for reason in imported.reasons] == [
        "line 2",
        "line 4",
        "line 6",
    ]


async def test_large_span_message_of_a_file_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_SPANS_BYTES", 100)
    spans = interleaved()
    store = Noting()

    imported = await import_into(store, encode_json(spans), batch_bytes=1)

    assert imported.spans == 7
    assert [trace.count for trace in store.calls[0]] == [1]
