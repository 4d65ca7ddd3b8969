"""What is told of a run to somebody who has an earlier state of it: what all stores agree on."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tracer.lineage.nodes import Row
from tracer.records.merge import RULES
from tracer.records.record_classes import Kind
from tracer.store import RunChanges

Removed = tuple[Kind, UUID]
"""A record that a projection had no more."""


def changes_between(
    after: int,
    revision: int,
    changed: Sequence[Row],
    removed: Sequence[Removed],
    limit: int,
) -> RunChanges:
    """Return what is to be told of a run to somebody who has it as it was.

    Args:
        after: The revision that they have.
        revision: The run's now.
        changed: The rows of the records that were changed since, as far as `limit` allows and more.
        removed: The records that were removed since, those too that have come back.
        limit: How much may be told.
    """
    if after > revision or len(changed) + len(removed) > limit:
        return RunChanges(revision, is_reset=True)
    # What came back was changed after it was removed.
    there = {(row.kind, getattr(row, RULES[row.kind].id_field)) for row in changed}
    gone = [(kind, id_) for kind, id_ in removed if (kind, str(id_)) not in there]
    return RunChanges(revision, changed, gone)
