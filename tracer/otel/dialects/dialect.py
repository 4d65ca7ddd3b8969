"""`Dialect`: what a module declares so that Tracer reads the spans of a convention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tracer.otel.dialects.run_spans import SlimSpan
from tracer.otel.dialects.span_facts import SpanFacts, first
from tracer.records.spans import Attributes, LogRecord, ReadableSpan, SpanEvent

CompleteRun = Callable[[list[SlimSpan], list[LogRecord]], list[SlimSpan]]


class PendingSpans(NamedTuple):
    """How a dialect recognizes spans that announce other spans before they end."""

    is_pending: Callable[[ReadableSpan], bool]
    """Returns whether a span announces its parent, and is no span of its own."""
    announced_parent: Callable[[ReadableSpan], bytes | None]
    """Returns the parent id of the announced span; None for a root span."""


@dataclass(frozen=True, eq=False)
class Dialect:
    """The reader of one convention. Each dialect module assigns an instance to `DIALECT`."""

    title: str
    order: int
    """If the attributes of a span mark several dialects, the one with the least order reads it."""
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, Any])
    """The names of the attributes that the dialect reads. The key is the field of `SpanFacts` that
    the attributes fill, or a key of `USES`. A name that ends with `*` is a prefix of names."""
    scopes: tuple[str, ...] = ()
    """The names of the instrumentation scopes that this dialect reads. A name that ends with `*` is
    a prefix of names."""
    marks: tuple[str, ...] = ()
    """Attributes that only spans of this convention have. If the dialect of a span's scope does not
    recognize the span, or there is none, the marks decide."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, Any])
    """The convention's own names for attributes of the GenAI conventions. In a dialect without
    `read`, this table and `operations` are all that the GenAI reader needs."""
    kind: str | None = None
    """The attribute whose value is a key of `operations`; None: the span's name is the key."""
    operations: Mapping[str, str] = field(default_factory=dict[str, Any])
    """The operation of the GenAI conventions (`gen_ai.operation.name`) by the span's kind. A kind
    that ends with `*` is a prefix of kinds; the rest of the kind is the name of the agent or tool.
    """
    read: Callable[[ReadableSpan], SpanFacts | None] | None = None
    """Returns the facts of a span of this convention; None for other spans."""
    read_with_parent: Callable[[ReadableSpan, ReadableSpan | None], SpanFacts | None] | None = None
    """Replaces `read` in dialects that also need the parent. The parent is passed only for spans
    that `reads_parent` accepts."""
    reads_parent: Callable[[ReadableSpan], bool] | None = None
    complete: CompleteRun | None = None
    """Adds spans and facts that only the whole run and its log records show. See `complete_run`. It
    is called for runs with one of the `scopes`."""
    pending: PendingSpans | None = None
    """Recognizes the pending spans of the convention; None: it has none."""
    sessions: Mapping[str, str] = field(default_factory=dict[str, Any])
    """The attribute of a log record that contains its session, by prefix of the scope's name. It is
    needed only for emitters whose log records may lack a trace id."""

    @property
    def is_table(self) -> bool:
        """Whether the dialect has only names, and the GenAI reader reads its spans."""
        return bool(self.names or self.operations)

    def claims(self, scope: str) -> bool:
        """Return whether `scope` is one of the dialect's scopes."""
        return any(
            scope.startswith(each[:-1]) if each.endswith("*") else scope == each
            for each in self.scopes
        )

    def translated(self, span: ReadableSpan) -> ReadableSpan:
        """Return a span as the GenAI conventions would write it, by `names` and `operations`."""
        attributes = dict(span.attributes)
        for name, own_names in self.names.items():
            if (value := first(span.attributes, own_names)) is not None:
                attributes[name] = value
        name = span.name
        kind = str(name if self.kind is None else span.attributes.get(self.kind))
        for own, operation in self.operations.items():
            if own == kind:
                attributes["gen_ai.operation.name"] = operation
            elif own.endswith("*") and kind.startswith(own[:-1]):
                attributes["gen_ai.operation.name"] = operation
                name = f"{operation} {kind.removeprefix(own[:-1])}"
        return _Translated(
            *(span.parent_span_id, span.start, name, span.scope, attributes),
            *(span.events, span.status_message),
        )


class _Translated(NamedTuple):
    parent_span_id: bytes | None
    start: int
    name: str
    scope: str
    attributes: Attributes
    events: tuple[SpanEvent, ...]
    status_message: str


USES = {
    "role": "whether the span is an agent, a model call, a tool call or a wrapper",
    "links": "joins spans and log records of one run",
    "status": "the status of the record",
    "times": "the start or the end of the record",
    "spans": "which spans are pending, or are no spans",
}
"""The uses of attributes that fill no field of `SpanFacts`. `docs/reference/attributes.md` contains
these texts."""
