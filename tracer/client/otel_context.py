"""Pass OpenTelemetry's context on to new threads, and suppress tracing of Tracer's own requests.

The package `opentelemetry-instrumentation-threading` also passes the context on. It is not used,
because it would add five packages to every agent. It also ignores threads whose class overrides
`run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial, wraps
from threading import Thread
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry.context import Context

SUPPRESSED = ("suppress_instrumentation", otel_context._SUPPRESS_INSTRUMENTATION_KEY)
"""The keys that instrumentations look for, as in `opentelemetry.instrumentation.utils`."""


@contextmanager
def suppress_instrumentation() -> Iterator[None]:
    """Make OpenTelemetry's instrumentations record nothing inside a `with` block."""
    context = otel_context.get_current()
    for key in SUPPRESSED:
        context = otel_context.set_value(key, True, context)
    with _attached(context):
        yield


@cache  # once for a process
def carry_work_into_threads() -> None:
    """Make `Thread`, `Timer` and `ThreadPoolExecutor` pass OpenTelemetry's context on.

    Tasks, `asyncio.to_thread` and asynchronous callbacks pass the context on by themselves.
    """
    start, submit = Thread.start, ThreadPoolExecutor.submit

    @wraps(start)
    def start_with_context(thread: Thread) -> None:
        context = otel_context.get_current()

        def run() -> None:
            del vars(thread)["run"]  # no cycle of thread and function stays behind
            with _attached(context):
                thread.run()

        vars(thread)["run"] = run
        start(thread)

    @wraps(submit)  # type: ignore[arg-type]  # the types of its parameters are not repeated
    def submit_with_context(
        executor: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        carried = partial(_call, otel_context.get_current(), function)
        return submit(executor, carried, *args, **kwargs)

    # mypy does not allow replacing a method; there is no other way to reach all threads.
    Thread.start = start_with_context  # type: ignore[method-assign, assignment]
    ThreadPoolExecutor.submit = submit_with_context  # type: ignore[method-assign, assignment]


def _call(context: Context, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with _attached(context):
        return function(*args, **kwargs)


@contextmanager
def _attached(context: Context) -> Iterator[None]:
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)
