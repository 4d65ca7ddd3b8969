"""Dialects: one file for each convention that describes agents in spans.

Each dialect returns the role and the fields of the spans that it recognizes. The first dialect that
recognizes a span is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tracer.otel.dialects import (
    a2a,
    adk,
    claude_code,
    codex,
    gemini_cli,
    genai,
    laminar,
    langfuse,
    langsmith,
    logfire,
    mcp,
    mlflow,
    opencode,
    openinference,
    openlit,
    openllmetry,
    strands,
    vercel,
)
from tracer.otel.dialects.logfire import announced_parent, is_pending
from tracer.otel.dialects.reading import WRAPPER, Reading
from tracer.otel.dialects.run_spans import SlimSpan
from tracer.otel.otlp.logs import LogRecord
from tracer.otel.otlp.spans import ReadableSpan

__all__ = [
    "announced_parent",
    "complete_run",
    "genai",
    "is_pending",
    "read_span",
    "reads_parent",
    "session_of",
]

CompleteRun = Callable[[list[SlimSpan], list[LogRecord]], list[SlimSpan]]

_COMPLETE_RUN: Mapping[str, CompleteRun] = {
    claude_code.SCOPE: claude_code.complete,
    codex.SCOPE: codex.complete,
    langsmith.SCOPE: langsmith.complete,
    opencode.SCOPE: opencode.complete,
}
"""The dialects that read a run as a whole, by the beginning of the names of their scopes."""


_SESSION_ATTRIBUTES: Mapping[str, str] = {"codex_otel": "conversation.id"}
"""The attribute that names the session of a log record, by the beginning of the scope's name. Only
for emitters whose log records may lack a trace id."""


def session_of(record: LogRecord) -> str | None:
    """Return the session that a log record names; None if it names none."""
    for beginning, attribute in _SESSION_ATTRIBUTES.items():
        if record.scope.startswith(beginning):
            session = record.attributes.get(attribute)
            return session if isinstance(session, str) and session else None
    return None


def reads_parent(span: ReadableSpan) -> bool:
    """Return whether `read_span` needs the parent of this span."""
    return openinference.reads_parent(span)


def read_span(span: ReadableSpan, parent: ReadableSpan | None = None) -> Reading:
    """Return the role and the fields of a span; `WRAPPER` if no dialect recognizes it.

    Args:
        span: The span.
        parent: Its parent, if that is known.
    """
    if logfire.is_log(span):
        return WRAPPER
    return (
        langfuse.read(span)
        or laminar.read(span)
        or langsmith.read(span)
        or mlflow.read(span)
        or logfire.read(span)
        or openlit.read(span)
        or strands.read(span)
        or openinference.read(span, parent)
        or openllmetry.read(span)
        or vercel.read(span)
        or claude_code.read(span)
        or codex.read(span)
        or gemini_cli.read(span)
        or adk.read(span)
        or mcp.read(span)
        or a2a.read(span)
        or genai.read(span)
        or WRAPPER
    )


def complete_run(spans: list[SlimSpan], logs: list[LogRecord]) -> list[SlimSpan]:
    """Add what follows only from the whole run and its log records, such as agents without a span.

    A dialect may change readings, parents and endings, and may create spans. It derives the ids of
    such spans from the emitter's own ids, so that they stay the same when more spans arrive. The
    result must not depend on the order in which spans and log records arrived.

    Args:
        spans: The run's spans by start and id, with parents and readings.
        logs: The run's log records by time.

    Returns:
        The spans that the run consists of, by start and id.
    """
    scopes = {span.scope for span in spans} | {record.scope for record in logs}
    for beginning, complete in _COMPLETE_RUN.items():
        if any(scope.startswith(beginning) for scope in scopes):
            spans = complete(spans, logs)
    return spans
