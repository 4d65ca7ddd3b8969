"""Dialects: each module reads the spans of one convention or SDK.

A dialect determines which spans are agents, model calls and tool calls, and extracts their fields.
To add a dialect, create a module in this package and assign a `Dialect` to its `DIALECT`. The
module needs no registration.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import Dialect
from tracer.otel.dialects.logfire import announced_parent, is_pending
from tracer.otel.dialects.run_spans import SlimSpan
from tracer.otel.dialects.span_facts import WRAPPER, SpanFacts
from tracer.otel.otlp.logs import LogRecord
from tracer.otel.otlp.spans import ReadableSpan

__all__ = [
    "DIALECTS",
    "announced_parent",
    "complete_run",
    "genai",
    "is_pending",
    "read_span",
    "reads_parent",
    "session_of",
]


def _declared() -> list[Dialect]:
    """Return the dialects of all modules in this package, sorted by `Dialect.order`."""
    modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    found = [module.DIALECT for module in modules if hasattr(module, "DIALECT")]
    return sorted(found, key=lambda dialect: (dialect.order, dialect.title))


DIALECTS = _declared()
_READERS = [(each.read, each.read_with_parent) for each in DIALECTS]
_PARENT_TESTS = [each.reads_parent for each in DIALECTS if each.reads_parent is not None]
_SESSIONS = [item for each in DIALECTS for item in each.sessions.items()]


def session_of(record: LogRecord) -> str | None:
    """Return the session that a log record belongs to; None if the record names no session.

    The record's instrumentation scope must be listed in `Dialect.sessions` of a dialect.
    """
    for beginning, attribute in _SESSIONS:
        if record.scope.startswith(beginning):
            session = record.attributes.get(attribute)
            return session if isinstance(session, str) and session else None
    return None


def reads_parent(span: ReadableSpan) -> bool:
    """Return whether `read_span` must receive the parent of this span."""
    return any(test(span) for test in _PARENT_TESTS)


def read_span(span: ReadableSpan, parent: ReadableSpan | None = None) -> SpanFacts:
    """Return the role and the fields of a span.

    The first dialect that recognizes the span reads it. If no dialect does, the result is
    `WRAPPER`.

    Args:
        span: The span.
        parent: The parent of the span; None if it is unknown or `reads_parent` is false.
    """
    for read, read_with_parent in _READERS:
        if read is not None:
            facts = read(span)
        elif read_with_parent is not None:
            facts = read_with_parent(span, parent)
        else:
            continue
        if facts is not None:
            return facts
    return WRAPPER


def complete_run(spans: list[SlimSpan], logs: list[LogRecord]) -> list[SlimSpan]:
    """Add facts that no single span shows, such as an agent without a span of its own.

    Each dialect with a `complete` function sees the whole run. It may change the facts, the parent
    and the end of spans, and may create spans. It derives the ids of created spans from the
    emitter's ids, so that they stay the same when more spans arrive. The result must not depend on
    the order in which spans and log records arrived.

    Args:
        spans: The run's spans, sorted by start and id, with parents and facts.
        logs: The run's log records, sorted by time.

    Returns:
        All spans of the run, sorted by start and id.
    """
    scopes = {span.scope for span in spans} | {record.scope for record in logs}
    for dialect in DIALECTS:
        if dialect.complete and any(scope.startswith(dialect.scope) for scope in scopes):
            spans = dialect.complete(spans, logs)
    return spans
