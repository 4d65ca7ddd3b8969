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

from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from tracer.otel.dialects import genai
from tracer.otel.dialects.dialect import WRAPPER, Dialect, SlimSpan, SpanFacts, include_parts
from tracer.otel.dialects.messages import read_messages, reported_failure
from tracer.otel.dialects.tables import TABLES
from tracer.records.spans import LogRecord, ReadableSpan

__all__ = [
    "DIALECTS",
    "announced_parent",
    "complete_run",
    "genai",
    "is_pending",
    "read_messages",
    "read_span",
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
_PENDING = [each.pending for each in DIALECTS if each.pending is not None]
_SESSIONS = [item for each in DIALECTS for item in each.sessions.items()]


@lru_cache(maxsize=1024)
def _of_scope(scope: str) -> Dialect | None:
    """Return the dialect of an instrumentation scope; None if no dialect claims the scope."""
    return next((each for each in DIALECTS if each.claims(scope)), None)


def _of_attributes(names: Iterable[str]) -> Dialect | None:
    """Return the dialect with the least order among those whose marks are in `names`."""
    if _MARKS.isdisjoint(names):
        return None
    return min((_BY_MARK[each] for each in _MARKS.intersection(names)), key=lambda each: each.order)


def session_of(record: LogRecord) -> str | None:
    """Return the session that a log record belongs to; None if the record names no session.

    The record's instrumentation scope must be listed in `Dialect.sessions` of a dialect.
    """
    for beginning, attribute in _SESSIONS:
        if record.scope.startswith(beginning):
            session = record.attributes.get(attribute)
            return session if isinstance(session, str) and session else None
    return None


def is_pending(span: ReadableSpan) -> bool:
    """Return whether a span is a pending span, which announces another span before it ends."""
    return any(each.is_pending(span) for each in _PENDING)


def announced_parent(pending: ReadableSpan) -> bytes | None:
    """Return the parent id of the span that a pending span announces; None for a root span."""
    for each in _PENDING:
        if each.is_pending(pending):
            return each.announced_parent(pending)
    return None


def reads_parent(span: ReadableSpan) -> bool:
    """Return whether `read_span` must receive the parent of this span."""
    return any(
        dialect is not None and dialect.reads_parent is not None and dialect.reads_parent(span)
        for dialect in (_of_scope(span.scope), _of_attributes(span.attributes))
    )


def read_span(span: ReadableSpan, parent: ReadableSpan | None = None) -> SpanFacts:
    """Return the role and the fields of a span.

    The dialect of the span's instrumentation scope reads it. If that dialect does not recognize
    the span, or no dialect claims the scope, the dialect of its attributes reads it. Finally, the
    GenAI conventions do. If none recognizes the span, the result is `WRAPPER`.

    Args:
        span: The span.
        parent: The parent of the span; None if it is unknown or `reads_parent` is false.
    """
    by_scope = _of_scope(span.scope)
    if by_scope is not None and (facts := _facts_of(by_scope, span, parent)) is not None:
        return facts
    by_attributes = _of_attributes(span.attributes)
    if by_attributes is not None and by_attributes is not by_scope:
        facts = _facts_of(by_attributes, span, parent)
        if facts is not None:
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
    include_parts(spans)
    genai.add_fetched_answers(spans)
    scopes = {span.scope for span in spans} | {record.scope for record in logs}
    present = {dialect for scope in scopes if (dialect := _of_scope(scope)) is not None}
    for dialect in DIALECTS:
        if dialect.complete is not None and dialect in present:
            spans = dialect.complete(spans, logs)
    return spans
