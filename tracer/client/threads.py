"""Current work in threads: what a thread starts hangs under what the thread was started in."""

from __future__ import annotations

from opentelemetry.instrumentation.threading import ThreadingInstrumentor


def carry_work_into_threads() -> None:
    """Let `Thread`, `Timer` and `ThreadPoolExecutor` hand on OpenTelemetry's context.

    It is done once for a process, by whoever comes first, and stays: tasks, `asyncio.to_thread` and
    asynchronous callbacks hand it on by themselves.
    """
    instrumentor = ThreadingInstrumentor()
    if not instrumentor.is_instrumented_by_opentelemetry:
        instrumentor.instrument()
