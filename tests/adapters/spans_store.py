"""A store for spans that goes away and comes back when it is told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider

from tests.adapters.recording import RecordedStore
from tracer.adapters.span_processor import MAX_WAITING, TracerSpanProcessor
from tracer.client.tracing import Tracing
from tracer.errors import StoreUnavailable
from tracer.otel.spans import Span
from tracer.recorder.spool import Spool
from tracer.store import WriteAnswer


class SpansStore(RecordedStore):
    """Keeps what was written, in the order in which it was."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[Span] = []
        self.is_down = False
        self.breaks = False
        self.reached = threading.Event()
        """Set whenever spans have come in, whether they are taken or not."""
        self.may_answer = threading.Event()
        self.may_answer.set()

    async def write_spans(self, spans: Sequence[Span]) -> WriteAnswer:
        self.reached.set()
        await asyncio.to_thread(self.may_answer.wait)
        if self.is_down:
            raise StoreUnavailable
        if self.breaks:
            raise RuntimeError("a payload: 4711")
        self.written += spans
        return await super().write_spans(spans)

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.written]


@contextmanager
def processing(
    folder: Path, max_waiting: int = MAX_WAITING
) -> Iterator[tuple[TracerProvider, SpansStore]]:
    """Give a provider whose spans go to a store, by a connection that is closed at the end."""
    store = SpansStore()
    with (
        pytest.MonkeyPatch.context() as patched,
        Tracing(lambda: nullcontext(store), lambda: Spool(folder / "spool.sqlite3")) as tracing,
    ):
        # Else a span that a busy machine holds up is sent before it has ended.
        patched.setattr("tracer.adapters.span_processor.DELAY_SECONDS", 2.0)
        store.tracing = tracing
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(TracerSpanProcessor(tracing, max_waiting=max_waiting))
        yield provider, store
        store.may_answer.set()
