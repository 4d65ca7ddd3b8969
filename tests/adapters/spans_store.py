"""A store for spans that tests make unavailable and available again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from uuid import UUID

from opentelemetry.sdk.trace import TracerProvider

from tests.adapters.recording import RecordedStore
from tests.otel.decoded import spans_of_traces
from tests.recordings import rows_of_spans
from tracer.adapters.opentelemetry import MAX_WAITING, TracerSpanProcessor
from tracer.client import Tracing
from tracer.errors import StoreUnavailable
from tracer.lineage import build_tree
from tracer.lineage.tree import PlanNode
from tracer.recorder import Spool
from tracer.records.spans import Span, TraceSpans
from tracer.store import WriteAnswer


class SpansStore(RecordedStore):
    """Keeps what was written, in the order in which it was."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Span] = []
        self.is_down = False
        self.breaks = False
        self.reached = threading.Event()
        """Set whenever spans arrive, whether accepted or not."""
        self.may_answer = threading.Event()
        self.may_answer.set()

    async def write_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
        self.reached.set()
        await asyncio.to_thread(self.may_answer.wait)
        if self.is_down:
            raise StoreUnavailable
        if self.breaks:
            raise RuntimeError("a payload: 4711")
        spans = spans_of_traces(traces)
        self.written += spans
        return WriteAnswer(len(spans))

    def trees(self) -> list[PlanNode]:
        by_trace: dict[bytes, list[Span]] = {}
        for span in list(self.written):
            by_trace.setdefault(span.trace_id, []).append(span)
        return [
            build_tree(rows_of_spans(by_trace[trace_id]), str(UUID(bytes=trace_id)))
            for trace_id in sorted(by_trace)
        ]

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.written]


@contextmanager
def processing(
    folder: Path, max_waiting: int = MAX_WAITING, delay_seconds: float = 2
) -> Iterator[tuple[TracerProvider, SpansStore]]:
    """Yield a provider whose spans go to a store, through a connection that is closed at the end.

    With the default delay of a processor, a busy machine could send a span before it has ended.
    """
    store = SpansStore()
    with (
        Tracing(lambda: nullcontext(store), lambda: Spool(folder / "spool.sqlite3")) as tracing,
    ):
        store.tracing = tracing
        provider = TracerProvider(shutdown_on_exit=False)
        processor = TracerSpanProcessor(
            tracing, max_waiting=max_waiting, delay_seconds=delay_seconds
        )
        provider.add_span_processor(processor)
        yield provider, store
        store.may_answer.set()
