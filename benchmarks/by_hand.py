"""The cost of recording a tool call in the agent's process, against one OpenTelemetry SDK span.

A tool call is a block of a buffered connection: both writes, and the work of the recorder's thread
until a store would accept them. A span is started and ended with a batching processor, until an
exporter would send it. The two take turns in one process; a figure is the median of the rounds'
processor time.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.figures import Figure, at_most
from benchmarks.surroundings import Bench
from tracer.client import Tracing
from tracer.recorder import Spool
from tracer.records.events import Event
from tracer.storage.memory import RecordingInMemory
from tracer.store import WriteAnswer

CALLS = 1000
"""How many calls or spans a round makes, one after another."""

ARGUMENTS = '{"patient": "p-1", "arm": "left"}'


class NoStore(RecordingInMemory):
    """Accepts events and stores none."""

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        """Report the events as stored."""
        return WriteAnswer(len(events))


class NoExporter(SpanExporter):
    """Accepts spans and sends none."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Report the spans as sent."""
        return SpanExportResult.SUCCESS


def microseconds(round_of: Callable[[], Any], settle: Callable[[], Any]) -> float:
    """Return the processor time of one call in microseconds, including the work to settle it."""
    gc.collect()
    begun = process_time()
    round_of()
    settle()
    return (process_time() - begun) / CALLS * 1e6


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure both in turn."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(NoExporter(), max_queue_size=4 * CALLS))
    otel = provider.get_tracer("benchmark")
    ours: list[float] = []
    spans: list[float] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Tracing(
            lambda: nullcontext(NoStore()), lambda: Spool(Path(folder) / "spool"), buffered=True
        ) as tracing,
        tracing.plan("Benchmark"),
        tracing.think_act() as thought,
    ):

        def tool_calls() -> None:
            for _ in range(CALLS):
                with tracing.tool_call("measure", ARGUMENTS, provider_call_id="call_0") as call:
                    call.finish("121/79")

        def sdk_spans() -> None:
            for _ in range(CALLS):
                with otel.start_as_current_span("execute_tool measure") as span:
                    span.set_attribute("gen_ai.tool.name", "measure")
                    span.set_attribute("gen_ai.tool.call.id", "call_0")
                    span.set_attribute("gen_ai.tool.call.arguments", ARGUMENTS)
                    span.set_attribute("gen_ai.tool.call.result", "121/79")

        for _ in range(bench.sized(30, 2)):
            ours.append(microseconds(tool_calls, tracing.flush))
            spans.append(microseconds(sdk_spans, provider.force_flush))
        thought.finish()
    provider.shutdown()
    yield Figure(name="a span of OpenTelemetry's SDK", value=median(spans), unit="µs/span")
    yield Figure(
        name="a tool call by hand, buffered",
        value=median(ours),
        unit="µs/call",
        yardstick="a span of OpenTelemetry's SDK",
        ratio=median(a / b for a, b in zip(ours, spans, strict=True)),
        goal=at_most(1.5),
    )
