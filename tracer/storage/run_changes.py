"""The rule by which every store reports the changes of a run since an earlier revision."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tracer.lineage.nodes import Row
from tracer.records.merge import RULES
from tracer.records.record_classes import Kind
from tracer.store import RunChanges

Removed = tuple[Kind, UUID]
"""A record that a projection removed."""


def changes_between(
    after: int,
    revision: int,
    changed: Sequence[Row],
    removed: Sequence[Removed],
    limit: int,
) -> RunChanges:
    """Return the changes of a run since a revision.

    Args:
        after: The revision that the reader has.
        revision: The run's current revision.
        changed: The rows changed since then; at least `limit` + 1 if there are more than `limit`.
        removed: The records removed since then, including those that exist again.
        limit: The largest number of changes. If there are more, `is_reset` is set in the result.
    """
    if after > revision or len(changed) + len(removed) > limit:
        return RunChanges(revision, is_reset=True)
    # A removed record that exists again is among the changed ones.
    existing = {(row.kind, getattr(row, RULES[row.kind].id_field)) for row in changed}
    remaining = [(kind, id_) for kind, id_ in removed if (kind, str(id_)) not in existing]
    return RunChanges(revision, changed, remaining)
