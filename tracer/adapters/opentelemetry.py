"""A span processor that writes OpenTelemetry spans when they start, and again when they end.

    provider.add_span_processor(TracerSpanProcessor(tracing))

OTLP exporters send only finished spans. A span processor also receives the start of each span. So
operations are visible while they run. If the process is killed, its unfinished operations stay
visible.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

from tracer.errors import missing_extra

try:
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.sdk.trace import Span as OpenSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
except ImportError as error:
    raise missing_extra(__name__, "otel", error) from error
from opentelemetry.context import Context
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from tracer.client import Connection, current_about, suppress_instrumentation
from tracer.logs import get_logger
from tracer.otel.otlp import decode_protobuf
from tracer.recorder import CLOSING_SECONDS, STORE_AWAY, error_location
from tracer.records.spans import TraceSpans
from tracer.store import TraceWriter

log = get_logger(__name__)

MAX_WAITING = 8192
"""The largest number of queued spans, by default. Spans that are being written do not count."""

BATCH_SPANS = 256
"""How many spans are written at once."""

DELAY_SECONDS = 0.1
"""How long a queued span waits, by default, so that later spans join its batch."""

SHUTDOWN_SECONDS = 30.0
"""How long the shutdown waits for the store."""

_Key = tuple[int, int]
"""Trace and span."""


class TracerSpanProcessor(SpanProcessor):
    """Writes each sampled OpenTelemetry span through a connection, in the background.

    The processor never blocks the agent and never raises. While the store does not answer, the
    processor retries. If the queue is full, the processor first drops starts of spans, then the
    oldest spans. It logs the number of dropped spans. `shutdown` does not close the connection.

    Spans that start in a block of the connection's `about` get its user and session as attributes.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        max_waiting: int = MAX_WAITING,
        delay_seconds: float = DELAY_SECONDS,
    ) -> None:
        """Create a processor.

        Args:
            connection: The connection from `tracer.connect()`. When this connection closes, it
                waits up to a few seconds until the queued spans are sent.
            max_waiting: How many spans may be queued.
            delay_seconds: How long a queued span waits, so that later spans join its batch.
        """
        self._connection = connection
        self._max_waiting = max_waiting
        self._delay_seconds = delay_seconds
        self._is_shut_down = False
        self._is_stopped = connection.is_disabled
        self._reset()
        _processors.add(self)

    def _reset(self) -> None:
        """Empty the queue in a forked process, because the parent sends the queued spans."""
        # Reentrant, because a signal handler may start a span in the thread that holds the lock.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._starts: dict[_Key, OpenSpan] = {}
        self._ends: deque[ReadableSpan] = deque()
        self._dropped_starts = self._dropped_ends = 0
        self._sending: Future[None] | None = None
        self._wake: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._is_urgent = False
        """Whether `_send` must write the queued spans at once, without waiting for more spans."""
        self._batches_taken = self._batches_done = 0
        """How many times `_send` took all spans from the queue, and how many times it has finished
        writing the spans that it took."""

    # --- In the agent's threads ----------------------------------------------------------------

    def on_start(self, span: OpenSpan, parent_context: Context | None = None) -> None:
        """Queue the start of a span."""
        try:
            context = span.context
            if context.trace_flags.sampled and not self._is_stopped:
                self._add_about(span, parent_context)
                with self._lock:
                    self._starts[context.trace_id, context.span_id] = span
                    self._span_added()
        except Exception as error:
            log.error("span_not_taken", error=error_location(error))

    def _add_about(self, span: OpenSpan, parent_context: Context | None) -> None:
        about = current_about(self._connection, parent_context)
        for name, value in (
            () if about is None else (("user.id", about.user), ("session.id", about.session))
        ):
            if value is not None and name not in (span.attributes or ()):
                span.set_attribute(name, value)

    def on_end(self, span: ReadableSpan) -> None:
        """Queue the end of a span. If the span's start is still queued, only the end is sent."""
        try:
            context = span.context
            if context is not None and context.trace_flags.sampled and not self._is_stopped:
                with self._lock:
                    self._starts.pop((context.trace_id, context.span_id), None)
                    self._ends.append(span)
                    self._span_added()
        except Exception as error:
            log.error("span_not_taken", error=error_location(error))

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until all earlier spans are in the store, and return whether they are."""
        with self._changed:
            goal = self._batches_taken + bool(self._starts or self._ends)
            self._send_now()
            return self._changed.wait_for(lambda: self._batches_done >= goal, timeout_millis / 1000)

    def shutdown(self) -> None:
        """Accept no more spans, and send the queued spans for at most `SHUTDOWN_SECONDS`."""
        with self._lock:
            self._is_shut_down = True
        if not self.force_flush(int(SHUTDOWN_SECONDS * 1000)):
            sending = self._sending
            with self._lock:
                self._stop()
            if sending is not None:
                sending.cancel()

    def _span_added(self) -> None:
        """Start to send queued spans. The caller must hold the lock and must have queued a span."""
        waiting = len(self._starts) + len(self._ends)
        if self._is_shut_down:
            self._stop()
            return
        if waiting > self._max_waiting:
            if self._starts:
                del self._starts[next(iter(self._starts))]
                self._dropped_starts += 1
            else:
                self._ends.popleft()
                self._dropped_ends += 1
        if self._sending is None:
            try:
                self._sending = sending = self._connection.run(self._send)
            except RuntimeError:  # the connection is closed
                self._stop()
            else:
                sending.add_done_callback(self._sending_ended)
        elif waiting == BATCH_SPANS:
            self._send_now()

    def _sending_ended(self, sending: Future[None]) -> None:
        with self._lock:
            if self._sending is sending:
                self._sending = None

    def _stop(self) -> None:
        """Drop queued spans, log their number, and accept no more."""
        self._is_stopped = True
        self._dropped_starts += len(self._starts)
        self._dropped_ends += len(self._ends)
        self._starts.clear()
        self._ends.clear()
        self._log_dropped()

    def _send_now(self) -> None:
        self._is_urgent = bool(self._starts or self._ends)
        if self._wake is not None:
            loop, event = self._wake
            loop.call_soon_threadsafe(event.set)

    def _log_dropped(self) -> None:
        if self._dropped_starts or self._dropped_ends:
            log.error("spans_dropped", starts=self._dropped_starts, spans=self._dropped_ends)
            self._dropped_starts = self._dropped_ends = 0

    # --- In the connection's thread ------------------------------------------------------------

    async def _send(self, writer: TraceWriter) -> None:
        """Write queued spans until the queue is empty."""
        urgent = asyncio.Event()
        wake = asyncio.get_running_loop(), urgent
        with self._lock:
            self._wake = wake
            if self._is_urgent:
                urgent.set()
        try:
            # Otherwise a program's instrumentation would trace our requests, and send them here.
            with suppress_instrumentation():
                while (spans := await self._next_spans(urgent)) is not None:
                    try:
                        await self._write(writer, spans)
                    finally:
                        with self._changed:
                            self._batches_done += 1
                            self._changed.notify_all()
        finally:
            with self._lock:
                if self._wake is wake:
                    self._wake = None

    async def _next_spans(self, urgent: asyncio.Event) -> list[ReadableSpan] | None:
        """Wait `delay_seconds` for more spans, then take all spans from the queue.

        If the queue is empty, return None at once.
        """
        with self._lock:
            if not self._starts and not self._ends:
                # Under the same lock as the check, so that a span queued later starts a new
                # `_send`.
                self._wake = self._sending = None
                self._is_urgent = False
                return None
        try:
            async with asyncio.timeout(self._delay_seconds):
                await urgent.wait()
        except TimeoutError:
            pass
        urgent.clear()
        with self._lock:
            self._is_urgent = False
            spans: list[ReadableSpan] = [*self._ends, *self._starts.values()]
            self._starts.clear()
            self._ends.clear()
            self._batches_taken += 1
            self._log_dropped()
        return spans

    async def _write(self, writer: TraceWriter, spans: Sequence[ReadableSpan]) -> None:
        for begin in range(0, len(spans), BATCH_SPANS):
            batch = spans[begin : begin + BATCH_SPANS]
            try:
                # A span that has ended since is in the queue again, as ended.
                traces = encoded_spans(span for span in batch if not _has_ended_since(span))
                async for attempt in AsyncRetrying(
                    retry=retry_if_exception_type(STORE_AWAY),
                    wait=wait_random_exponential(multiplier=0.1, max=10),
                ):
                    with attempt:
                        answer = await writer.write_spans(traces)
                for refusal in answer.refused:
                    log.warning("span_refused", code=refusal.code)
            except asyncio.CancelledError:
                log.error("spans_dropped", spans=len(spans) - begin)
                raise
            except Exception as error:
                log.error("spans_dropped", spans=len(batch), error=error_location(error))


class StoreExporter(SpanExporter):
    """Writes ended spans by a function, while the SDK waits."""

    def __init__(self, write: Callable[[Sequence[TraceSpans]], object]) -> None:
        """Create an exporter that passes the spans of each batch to `write`."""
        self._write = write

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write spans."""
        self._write(encoded_spans(spans))
        return SpanExportResult.SUCCESS


def _has_ended_since(span: ReadableSpan) -> bool:
    return isinstance(span, OpenSpan) and span.end_time is not None


def encoded_spans(spans: Iterable[ReadableSpan]) -> list[TraceSpans]:
    """Return spans as stores receive them. Spans that cannot be encoded are logged."""
    spans = list(spans)
    try:
        decoded = decode_protobuf(encode_spans(spans).SerializeToString())
    except Exception as error:
        if len(spans) == 1:
            log.error("span_not_encoded", error=error_location(error))
            return []
        return [each for span in spans for each in encoded_spans([span])]
    for refused in decoded.refused:
        log.warning("span_refused", reason=refused.reason)
    return decoded.traces


_processors: weakref.WeakSet[TracerSpanProcessor] = weakref.WeakSet()


def flush_processors() -> None:
    """Send the queued spans of all processors."""
    for processor in list(_processors):
        processor.force_flush(int(CLOSING_SECONDS * 1000))


def _reset_all() -> None:
    for processor in list(_processors):
        processor._reset()


os.register_at_fork(after_in_child=_reset_all)
# Runs before the interpreter ends the executors, which a store may need. Connections close later.
threading._register_atexit(flush_processors)  # type: ignore[attr-defined]
