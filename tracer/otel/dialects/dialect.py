"""`Dialect`: what a module declares so that Tracer reads the spans of a convention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tracer.otel.dialects.run_spans import SlimSpan
from tracer.otel.dialects.span_facts import SpanFacts
from tracer.otel.otlp.logs import LogRecord
from tracer.otel.otlp.spans import ReadableSpan

CompleteRun = Callable[[list[SlimSpan], list[LogRecord]], list[SlimSpan]]


class Dialect(NamedTuple):
    """The reader of one convention. Each dialect module assigns an instance to `DIALECT`."""

    title: str
    order: int
    """If several dialects recognize a span, the one with the least order reads it. General dialects
    have the greatest order."""
    reads: Mapping[str, tuple[str, ...]]
    """The names of the attributes that the dialect reads. The key is the field of `SpanFacts` that
    the attributes fill, or a key of `USES`. A name that ends with `*` is a prefix of names."""
    read: Callable[[ReadableSpan], SpanFacts | None] | None = None
    """Returns the facts of a span of this convention; None for other spans."""
    read_with_parent: Callable[[ReadableSpan, ReadableSpan | None], SpanFacts | None] | None = None
    """Replaces `read` in dialects that also need the parent. The parent is passed only for spans
    that `reads_parent` accepts."""
    reads_parent: Callable[[ReadableSpan], bool] | None = None
    scope: str = ""
    """The prefix of a scope's name. `complete` is called for runs with such a scope."""
    complete: CompleteRun | None = None
    """Adds spans and facts that only the whole run and its log records show. See `complete_run`."""
    sessions: Mapping[str, str] = {}
    """The attribute of a log record that contains its session, by prefix of the scope's name. It is
    needed only for emitters whose log records may lack a trace id."""


USES = {
    "role": "whether the span is an agent, a model call, a tool call or a wrapper",
    "links": "joins spans and log records of one run",
    "status": "the status of the record",
    "times": "the start or the end of the record",
    "spans": "which spans are pending, or are no spans",
}
"""The uses of attributes that fill no field of `SpanFacts`. `docs/reference/attributes.md` contains
these texts."""
