"""Dialects: one file for each convention that describes agents in spans.

Each dialect returns the role and the fields of the spans that it recognizes. A module of this
package that assigns a `Dialect` to `DIALECT` is a dialect; nothing else has to name it.
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
    """Return the dialects that the modules of this package declare, by their order."""
    modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    found = [module.DIALECT for module in modules if hasattr(module, "DIALECT")]
    return sorted(found, key=lambda dialect: (dialect.order, dialect.title))


DIALECTS = _declared()
_READERS = [(each.read, each.read_with_parent) for each in DIALECTS]
_PARENT_TESTS = [each.reads_parent for each in DIALECTS if each.reads_parent is not None]
_SESSIONS = [item for each in DIALECTS for item in each.sessions.items()]


def session_of(record: LogRecord) -> str | None:
    """Return the session that a log record names; None if it names none."""
    for beginning, attribute in _SESSIONS:
        if record.scope.startswith(beginning):
            session = record.attributes.get(attribute)
            return session if isinstance(session, str) and session else None
    return None


def reads_parent(span: ReadableSpan) -> bool:
    """Return whether `read_span` needs the parent of this span."""
    return any(test(span) for test in _PARENT_TESTS)


def read_span(span: ReadableSpan, parent: ReadableSpan | None = None) -> SpanFacts:
    """Return the role and the fields of a span; `WRAPPER` if no dialect recognizes it.

    The first dialect that recognizes it is used.

    Args:
        span: The span.
        parent: Its parent, if that is known.
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
    """Add what follows only from the whole run and its log records, such as agents without a span.

    A dialect may change facts, parents and endings, and may create spans. It derives the ids of
    such spans from the emitter's own ids, so that they stay the same when more spans arrive. The
    result must not depend on the order in which spans and log records arrived.

    Args:
        spans: The run's spans by start and id, with parents and facts.
        logs: The run's log records by time.

    Returns:
        The spans that the run consists of, by start and id.
    """
    scopes = {span.scope for span in spans} | {record.scope for record in logs}
    for dialect in DIALECTS:
        if dialect.complete and any(scope.startswith(dialect.scope) for scope in scopes):
            spans = dialect.complete(spans, logs)
    return spans
