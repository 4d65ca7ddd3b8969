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
    """The dialect with the least order that recognizes a span reads it. General ones come last."""
    reads: Mapping[str, tuple[str, ...]]
    """The attributes that it reads, by the field of `SpanFacts` that they fill, or by a key of
    `USES`. A name that ends with `*` is the beginning of names."""
    read: Callable[[ReadableSpan], SpanFacts | None] | None = None
    """Returns the facts of a span of this convention; None for other spans."""
    read_with_parent: Callable[[ReadableSpan, ReadableSpan | None], SpanFacts | None] | None = None
    """Does the same with the span's parent, for spans that `reads_parent` accepts."""
    reads_parent: Callable[[ReadableSpan], bool] | None = None
    scope: str = ""
    """The beginning of the names of the scopes of runs that `complete` takes."""
    complete: CompleteRun | None = None
    """Adds what follows only from a whole run and its log records."""
    sessions: Mapping[str, str] = {}
    """The attribute that names the session of a log record, by the beginning of the scope's name.
    Only for emitters whose log records may lack a trace id."""


USES = {
    "role": "whether the span is an agent, a model call, a tool call or a wrapper",
    "links": "joins spans and log records of one run",
    "status": "the status of the record",
    "times": "the start or the end of the record",
    "spans": "which spans are pending, or are no spans",
}
"""Uses of attributes that fill no field of `SpanFacts`."""
