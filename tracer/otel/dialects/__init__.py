"""Dialects: each module reads the spans of one convention or SDK.

A dialect determines which spans are agents, model calls and tool calls, and extracts their fields.
To add a dialect, create a module in this package and assign a `Dialect` to its `DIALECT`. The
module needs no registration. A convention that differs from the GenAI conventions only in names is
a table in `tables`.

Public modules:

- `dialect`: what a dialect declares, and the facts that it returns
- `genai`: the GenAI conventions, which read whatever no other dialect recognizes
- `session`: what the dialect of a coding agent declares about its sessions
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import (
    WRAPPER,
    Dialect,
    PendingSpans,
    SlimSpan,
    SpanFacts,
    include_parts,
)
from tracer.otel.dialects.messages import read_messages, reported_failure
from tracer.otel.dialects.tables import TABLES
from tracer.records.spans import Attributes, LogRecord, ReadableSpan

__all__ = [
    "DIALECTS",
    "complete_run",
    "dialects_of",
    "genai",
    "pending_of",
    "read_messages",
    "read_span",
    "readers_of",
    "reads_parent",
    "reported_failure",
    "session_of",
]


def _declared() -> list[Dialect]:
    """Return the dialects of all modules in this package, sorted by `Dialect.order`."""
    modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    found = [module.DIALECT for module in modules if hasattr(module, "DIALECT")]
    return sorted((*found, *TABLES), key=lambda dialect: (dialect.order, dialect.title))


DIALECTS = _declared()
_BY_MARK = {mark: each for each in reversed(DIALECTS) for mark in each.marks}
_MARKS = frozenset(_BY_MARK)
_SESSIONS = [item for each in DIALECTS for item in each.sessions.items()]


@lru_cache(maxsize=1024)
def _of_scope(scope: str) -> Dialect | None:
    """Return the dialect of an instrumentation scope; None if no dialect claims the scope."""
    return next((each for each in DIALECTS if each.claims(scope)), None)


def session_of(record: LogRecord) -> str | None:
    """Return the session that a log record belongs to; None if the record names no session.

    The record's instrumentation scope must be listed in `Dialect.sessions` of a dialect.
    """
    for beginning, attribute in _SESSIONS:
        if record.scope.startswith(beginning):
            session = record.attributes.get(attribute)
            return session if isinstance(session, str) and session else None
    return None


def readers_of(scope: str, attributes: Attributes) -> tuple[Dialect, ...]:
    """Return the dialects that read a span, before the GenAI conventions do.

    The first one is that of the span's instrumentation scope, the second one that of its
    attributes. Most spans of the GenAI conventions have neither.
    """
    by_scope = _of_scope(scope)
    if _MARKS.isdisjoint(attributes):
        return () if by_scope is None else (by_scope,)
    marked = (_BY_MARK[each] for each in _MARKS.intersection(attributes))
    by_attributes = min(marked, key=lambda each: each.order)
    return (by_attributes,) if by_scope in (None, by_attributes) else (by_scope, by_attributes)


def pending_of(span: SlimSpan) -> PendingSpans | None:
    """Return how to read a span that announces another span before it ends; None for others."""
    for each in span.readers:
        if each.pending is not None and each.pending.is_pending(span):
            return each.pending
    return None


def reads_parent(span: SlimSpan) -> bool:
    """Return whether `read_span` must receive the parent of this span."""
    return any(each.reads_parent is not None and each.reads_parent(span) for each in span.readers)


def read_span(span: SlimSpan, parent: SlimSpan | None = None) -> SpanFacts:
    """Return the role and the fields of a span.

    The first of the span's readers that recognizes it reads it. If none does, the GenAI conventions
    do. If they do not recognize the span, the result is `WRAPPER`.

    Args:
        span: The span.
        parent: The parent of the span; None if it is unknown or `reads_parent` is false.
    """
    for dialect in span.readers:
        if (facts := _facts_of(dialect, span, parent)) is not None:
            return facts
    return genai.read(span) or WRAPPER


def _facts_of(
    dialect: Dialect, span: ReadableSpan, parent: ReadableSpan | None
) -> SpanFacts | None:
    if dialect.read is not None:
        return dialect.read(span)
    if dialect.read_with_parent is not None:
        return dialect.read_with_parent(span, parent)
    return genai.read(dialect.translated(span)) if dialect.is_table else None


def dialects_of(spans: list[SlimSpan], logs: list[LogRecord]) -> list[Dialect]:
    """Return the dialects of the instrumentation scopes of a run, sorted by `Dialect.order`."""
    scopes = {span.scope for span in spans} | {record.scope for record in logs}
    present = {_of_scope(scope) for scope in scopes} - {None}
    return [dialect for dialect in DIALECTS if dialect in present] if present else []


def complete_run(
    spans: list[SlimSpan], logs: list[LogRecord], present: list[Dialect]
) -> list[SlimSpan]:
    """Add facts that no single span shows, such as an agent without a span of its own.

    Each dialect with a `complete` function sees the whole run. It may change the facts, the parent
    and the end of spans, and may create spans. It derives the ids of created spans from the
    emitter's ids, so that they stay the same when more spans arrive. The result must not depend on
    the order in which spans and log records arrived.

    Args:
        spans: The run's spans, sorted by start and id, with parents and facts.
        logs: The run's log records, sorted by time.
        present: The dialects of the run (`dialects_of`).

    Returns:
        All spans of the run, sorted by start and id.
    """
    include_parts(spans)
    genai.add_fetched_answers(spans)
    for dialect in present:
        if dialect.complete is not None:
            spans = dialect.complete(spans, logs)
    return spans
