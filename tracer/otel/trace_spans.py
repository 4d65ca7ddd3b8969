"""The spans of one trace as far as they came: one version of each, and each read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tracer.otel.carried_records import RECORD
from tracer.otel.dialects import logfire, read_span, reads_parent
from tracer.otel.dialects.reading import Reading
from tracer.otel.forest import Forest, parents_of
from tracer.otel.spans import Span, newer
from tracer.otel.texts import Texts
from tracer.redaction import MASK

_MASK = MASK[1:].encode()
"""What every mask has in it; in JSON its bracket may be written in another way."""

_MOST_CHILDREN = 10
_MOST_READ_BYTES = 1_000_000
"""More children than that are read with their parent only while it is small."""

_SPAN_BYTES = 5000
"""About what a span takes up in memory besides what it says: with its reading, its place and its
record."""


class Put(NamedTuple):
    """What spans changed of a trace: each span once, the version that stays."""

    new: list[Span]
    """Those of which there was no version."""
    newer: list[Span]
    """Those that take the place of an older version."""


class More(NamedTuple):
    """A span that came since the trace was planted."""

    span: Span
    reading: Reading
    earlier: Span | None
    """The version of it that was there."""


class TraceSpans:
    """The spans of one trace. What is said of each alone is remembered, however often asked for."""

    def __init__(self) -> None:
        self.versions: dict[bytes, Span] = {}
        """The version that stays of each span."""
        self.size = 0
        """About how much memory they take up."""
        self.carry_records = False
        """Whether any may carry the record that it was made of."""
        self.hold_masks = False
        """Whether any may have a mask in it: if not, no record need be searched for one."""
        self._pending: dict[bytes, Span] = {}
        """What each pending span announces."""
        self._read: dict[bytes, Span] = {}
        self._readings: dict[bytes, Reading] = {}
        self._texts = Texts()
        self._parents_read: dict[bytes, Span | None] = {}
        """The parent that a span was read with, where its reading depends on that."""
        self._more: dict[bytes, Span | None] = {}
        """The spans that came since the trace was planted, with the versions that were there."""

    def put(self, spans: Iterable[Span]) -> Put:
        """Take spans in any order and number of versions, and return what that changes."""
        were_there: dict[bytes, bool] = {}
        for span in spans:
            span_id = span.span_id
            earlier = self.versions.get(span_id)
            if earlier is not None:
                if newer(earlier, span) is earlier:
                    continue
                self.size -= _size(earlier)
                self._pending.pop(span_id, None)
            were_there.setdefault(span_id, earlier is not None)
            if not self.carry_records:
                self._more.setdefault(span_id, earlier)
            self.versions[span_id] = span
            self.size += _size(span)
            if logfire.is_pending(span):
                self._pending[span_id] = logfire.announced(span)
            self.carry_records = self.carry_records or RECORD in span.attributes
            self.hold_masks = self.hold_masks or _MASK in span.body
        put = Put([], [])
        for span_id, was_there in were_there.items():
            (put.newer if was_there else put.new).append(self.versions[span_id])
        return put

    @property
    def are_plain(self) -> bool:
        """Whether each span is what it says itself, and nothing else."""
        return not (self._pending or self._parents_read or self.carry_records)

    def more(self) -> list[More] | None:
        """Return what came since the trace was planted, or since this was asked.

        Returns:
            None where a span is not only what it says itself.
        """
        more, self._more = self._more, {}
        if not self.are_plain:
            return None
        found = []
        for span_id, earlier in more.items():
            span = self.versions[span_id]
            if reads_parent(span):
                return None
            self._take(span_id, read_span(span))
            self._read[span_id] = span
            found.append(More(span, self._readings[span_id], earlier))
        return found

    def planted(self) -> Forest:
        """Return the spans as a forest that is the caller's own. There has to be one."""
        self._more = {}
        spans = self._standing()
        parents, missing = parents_of(spans)
        self._read_what_changed(spans, parents)
        return Forest(
            trace_id=next(iter(spans.values())).trace_id,
            spans=spans,
            order=[
                span_id
                for _, span_id in sorted([(span.start, span_id) for span_id, span in spans.items()])
            ],
            parents=parents,
            missing=missing,
            readings=self._readings.copy(),
            holds_masks=self.hold_masks,
            texts=self._texts,
            announced={each: span.span_id for each, span in self._pending.items()},
        )

    def _standing(self) -> Mapping[bytes, Span]:
        """Return the spans by id. What a pending one announces stands in until that one comes."""
        if not self._pending:
            return self.versions
        announced: dict[bytes, Span] = {}
        for span in self._pending.values():
            earlier = announced.get(span.span_id)
            announced[span.span_id] = span if earlier is None else newer(earlier, span)
        real = {each: span for each, span in self.versions.items() if each not in self._pending}
        return announced | real

    def _read_what_changed(
        self, spans: Mapping[bytes, Span], parents: Mapping[bytes, bytes | None]
    ) -> None:
        for span_id, span in spans.items():
            if self._read.get(span_id) is not span:
                self._parents_read.pop(span_id, None)
                if reads_parent(span):
                    self._parents_read[span_id] = span  # itself: it is read below
                else:
                    self._take(span_id, read_span(span))
                self._read[span_id] = span
        children = Counter(parents.get(span_id) for span_id in self._parents_read)
        for span_id, parent_read in self._parents_read.items():
            above = parents.get(span_id)
            parent = spans.get(above or b"")
            if parent is not None and _is_too_much(parent, children[above]):
                parent = None
            if parent is not parent_read and span_id in spans:
                self._take(span_id, read_span(spans[span_id], parent))
                self._parents_read[span_id] = parent

    def _take(self, span_id: bytes, reading: Reading) -> None:
        earlier = self._readings.get(span_id)
        if earlier is not None:
            self._texts.pop(earlier.arguments, None)
        self._readings[span_id] = reading


def _is_too_much(parent: Span, children: int) -> bool:
    """Return whether each child would read too much again of what its parent says, and keep it."""
    return children > _MOST_CHILDREN and children * len(parent.body) > _MOST_READ_BYTES


def _size(span: Span) -> int:
    return _SPAN_BYTES + 2 * len(span.body)
