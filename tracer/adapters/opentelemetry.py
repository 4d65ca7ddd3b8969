"""OpenTelemetry's spans, written when they start and again when they end.

    provider.add_span_processor(TracerSpanProcessor(tracing))

OTLP knows finished spans only. A processor sees them start, too: what goes on is shown while it
goes on, and what a process left unfinished when it was killed stays visible.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future

try:
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.sdk.trace import Span as OpenSpan
except ImportError as error:
    raise ImportError(
        "OpenTelemetry's SDK is missing: pip install 'tracer-lineage[otel]'"
    ) from error
from opentelemetry.context import Context
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from tracer.client.connection import Connection
from tracer.client.otel_context import suppress_instrumentation
from tracer.logs import get_logger
from tracer.otel.otlp.blocks import TraceSpans
from tracer.otel.otlp.decode_protobuf import decode_protobuf
from tracer.recorder.counts import error_location
from tracer.recorder.outage import STORE_AWAY
from tracer.recorder.recorder import CLOSING_SECONDS
from tracer.store import TraceWriter

log = get_logger(__name__)

MAX_WAITING = 8192
"""How many spans may wait; as many more may be on their way to the store."""

BATCH_SPANS = 256
"""How many spans are written at once."""

DELAY_SECONDS = 0.1
"""How long spans wait for others of the same batch, by default."""

SHUTDOWN_SECONDS = 30.0
"""How long the shutdown waits for the store."""

_Key = tuple[int, int]
"""Trace and span."""


class TracerSpanProcessor(SpanProcessor):
    """Writes each sampled span through a connection, in the background.

    It never makes the agent wait, and never raises. While the store is away it tries again and
    again; when too many spans wait, starts are given up first, then the oldest spans, and the log
    has their number. The connection is not closed with it.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        max_waiting: int = MAX_WAITING,
        delay_seconds: float = DELAY_SECONDS,
    ) -> None:
        """Begin to listen.

        Args:
            connection: What `tracer.connect()` returns. Closing it waits for the spans a while.
            max_waiting: How many spans may wait.
            delay_seconds: How long spans wait for others of the same batch.
        """
        self._connection = connection
        self._max_waiting = max_waiting
        self._delay_seconds = delay_seconds
        self._is_shut = False
        self._is_deaf = connection.is_disabled
        self._begin()
        _processors.add(self)

    def _begin(self) -> None:
        """Be empty: what waits in a forked process is the parent's."""
        # One that a thread may take again: a signal's handler may start a span, too.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._starts: dict[_Key, OpenSpan] = {}
        self._ends: deque[ReadableSpan] = deque()
        self._lost_starts = self._lost_ends = 0
        self._sending: Future[None] | None = None
        self._wake: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._is_hurried = False
        """Whether to send at once, even if the sending has not begun."""
        self._taken = self._settled = 0
        """How many times all that waited was taken, and how many of these came to their end."""

    # --- In the agent's threads ----------------------------------------------------------------

    def on_start(self, span: OpenSpan, parent_context: Context | None = None) -> None:
        """Take note of a span that starts."""
        try:
            context = span.context
            if context.trace_flags.sampled and not self._is_deaf:
                with self._lock:
                    self._starts[context.trace_id, context.span_id] = span
                    self._arrived()
        except Exception as error:
            log.error("span_not_taken", error=error_location(error))

    def on_end(self, span: ReadableSpan) -> None:
        """Take note of a span that has ended; if its start still waits, that is not sent."""
        try:
            context = span.context
            if context is not None and context.trace_flags.sampled and not self._is_deaf:
                with self._lock:
                    self._starts.pop((context.trace_id, context.span_id), None)
                    self._ends.append(span)
                    self._arrived()
        except Exception as error:
            log.error("span_not_taken", error=error_location(error))

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until the spans taken before are in the store, and return whether they are."""
        with self._changed:
            wanted = self._taken + bool(self._starts or self._ends)
            self._hurry()
            return self._changed.wait_for(lambda: self._settled >= wanted, timeout_millis / 1000)

    def shutdown(self) -> None:
        """Bring what waits to the store, for a while; take no more."""
        with self._lock:
            self._is_shut = True
        if not self.force_flush(int(SHUTDOWN_SECONDS * 1000)):
            sending = self._sending
            with self._lock:
                self._be_deaf()
            if sending is not None:
                sending.cancel()

    def _arrived(self) -> None:
        """Let the span be sent that was put down; with the lock."""
        waiting = len(self._starts) + len(self._ends)
        if self._is_shut:
            self._be_deaf()
            return
        if waiting > self._max_waiting:
            if self._starts:
                del self._starts[next(iter(self._starts))]
                self._lost_starts += 1
            else:
                self._ends.popleft()
                self._lost_ends += 1
        if self._sending is None:
            try:
                self._sending = sending = self._connection.run(self._send)
            except RuntimeError:  # it is closed
                self._be_deaf()
            else:
                sending.add_done_callback(self._forget)
        elif waiting == BATCH_SPANS:
            self._hurry()

    def _forget(self, sending: Future[None]) -> None:
        with self._lock:
            if self._sending is sending:
                self._sending = None

    def _be_deaf(self) -> None:
        """Lose what waits, and take no more: the log has it once."""
        self._is_deaf = True
        self._lost_starts += len(self._starts)
        self._lost_ends += len(self._ends)
        self._starts.clear()
        self._ends.clear()
        self._tell_lost()

    def _hurry(self) -> None:
        self._is_hurried = bool(self._starts or self._ends)
        if self._wake is not None:
            loop, event = self._wake
            loop.call_soon_threadsafe(event.set)

    def _tell_lost(self) -> None:
        if self._lost_starts or self._lost_ends:
            log.error("spans_dropped", starts=self._lost_starts, spans=self._lost_ends)
            self._lost_starts = self._lost_ends = 0

    # --- In the connection's thread ------------------------------------------------------------

    async def _send(self, writer: TraceWriter) -> None:
        """Write what waits, until nothing does."""
        hurry = asyncio.Event()
        wake = asyncio.get_running_loop(), hurry
        with self._lock:
            self._wake = wake
            if self._is_hurried:
                hurry.set()
        try:
            # Else a program's instrumentation would trace what we write, and we would write that.
            with suppress_instrumentation():
                while (taken := await self._take(hurry)) is not None:
                    try:
                        await self._write(writer, taken)
                    finally:
                        with self._changed:
                            self._settled += 1
                            self._changed.notify_all()
        finally:
            with self._lock:
                if self._wake is wake:
                    self._wake = None

    async def _take(self, hurry: asyncio.Event) -> list[ReadableSpan] | None:
        """Return all that waits, once it has waited for others; None where nothing does."""
        with self._lock:
            if not self._starts and not self._ends:
                # Under one lock with the look: whoever puts down a span later starts anew.
                self._wake = self._sending = None
                self._is_hurried = False
                return None
        try:
            async with asyncio.timeout(self._delay_seconds):
                await hurry.wait()
        except TimeoutError:
            pass
        hurry.clear()
        with self._lock:
            self._is_hurried = False
            taken: list[ReadableSpan] = [*self._ends, *self._starts.values()]
            self._starts.clear()
            self._ends.clear()
            self._taken += 1
            self._tell_lost()
        return taken

    async def _write(self, writer: TraceWriter, taken: Sequence[ReadableSpan]) -> None:
        for begin in range(0, len(taken), BATCH_SPANS):
            batch = taken[begin : begin + BATCH_SPANS]
            try:
                # The ends of what had started come by themselves.
                traces = _encoded(span for span in batch if not _has_ended_since(span))
                async for attempt in AsyncRetrying(
                    retry=retry_if_exception_type(STORE_AWAY),
                    wait=wait_random_exponential(multiplier=0.1, max=10),
                ):
                    with attempt:
                        answer = await writer.write_spans(traces)
                for refusal in answer.refused:
                    log.warning("span_refused", code=refusal.code)
            except asyncio.CancelledError:
                log.error("spans_dropped", spans=len(taken) - begin)
                raise
            except Exception as error:
                log.error("spans_dropped", spans=len(batch), error=error_location(error))


def _has_ended_since(span: ReadableSpan) -> bool:
    return isinstance(span, OpenSpan) and span.end_time is not None


def _encoded(spans: Iterable[ReadableSpan]) -> list[TraceSpans]:
    wanted = list(spans)
    try:
        decoded = decode_protobuf(encode_spans(wanted).SerializeToString())
    except Exception as error:
        if len(wanted) == 1:
            log.error("span_not_encoded", error=error_location(error))
            return []
        return [each for span in wanted for each in _encoded([span])]
    for refused in decoded.refused:
        log.warning("span_refused", reason=refused.reason)
    return decoded.traces


_processors: weakref.WeakSet[TracerSpanProcessor] = weakref.WeakSet()


def _flush_all() -> None:
    for processor in list(_processors):
        processor.force_flush(int(CLOSING_SECONDS * 1000))


def _begin_all() -> None:
    for processor in list(_processors):
        processor._begin()


os.register_at_fork(after_in_child=_begin_all)
# Before the executors end that a store may need. Connections close later, at exit.
threading._register_atexit(_flush_all)  # type: ignore[attr-defined]
