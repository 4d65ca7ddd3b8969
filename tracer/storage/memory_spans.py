"""Spans in memory and the records projected from them: what `postgres_spans` does in SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from tracer.merge import Key, Reduced
from tracer.otel.projected import Projected
from tracer.otel.projection import project
from tracer.otel.spans import Span, newer
from tracer.record_json import LEAST, merged_whole
from tracer.records import Kind
from tracer.storage.projected_runs import projected_parts
from tracer.storage.run_changes import Removed
from tracer.versions import Fields


@dataclass
class KeptSpans:
    """The spans of one run."""

    by_id: dict[bytes, Span] = field(default_factory=dict)

    def keep(self, spans: Iterable[Span]) -> bool:
        """Keep the newer version of each span, and return whether that changed anything."""
        changed = False
        for span in spans:
            kept = self.by_id.get(span.span_id)
            stays = span if kept is None else newer(kept, span)
            changed |= kept is None or stays.body != kept.body
            self.by_id[span.span_id] = stays
        return changed

    def by_start(self, span_ids: Collection[bytes] | None) -> list[Span]:
        """Return those of the spans, or all, by (start, span id)."""
        asked = self.by_id.keys() if span_ids is None else self.by_id.keys() & set(span_ids)
        return sorted((self.by_id[each] for each in asked), key=lambda span: span.order)

    def projected(self) -> Projected:
        """Return the records of the whole run."""
        return project(self.by_id.values())


def replace_records(
    parts: dict[Kind, dict[UUID, Fields]], projected: Projected, born: Fields, revision: int
) -> set[Removed]:
    """Make `parts` what a projection says, and return the records that are there no more.

    Records that stay the same keep their revision.

    Args:
        parts: The records of the run, by kind and id; changed in place.
        projected: What they become.
        born: What a new record has besides.
        revision: The run's.
    """
    removed: set[Removed] = set()
    for kind, records in projected_parts(projected).items():
        kept = parts[kind]
        removed |= {(kind, record_id) for record_id in kept.keys() - records.keys()}
        parts[kind] = {
            record_id: _replaced(kept.get(record_id), fields, born, revision)
            for record_id, fields in records.items()
        }
    return removed


def _replaced(kept: Fields | None, fields: Fields, born: Fields, revision: int) -> Fields:
    if kept is None:
        return {**fields, **born, "revision": revision}
    if all(kept.get(name) == value for name, value in fields.items()):
        return kept
    return {**kept, **fields, "revision": revision}


def dated(kind: Kind, key: Key, fields: Fields, said: Reduced, now: datetime) -> Fields:
    """Return a run or a record of spans with what no span says of it.

    Args:
        kind: Its kind.
        key: The run's id and its own.
        fields: What the spans say of it.
        said: What exports say of records of its run.
        now: When it was recorded, unless they say that.
    """
    version = {"recorded_at": now} | {
        name: value
        for name, value in said[kind].get(key, {}).items()
        if name in LEAST[kind] and value is not None
    }
    return merged_whole(kind, fields, version)
