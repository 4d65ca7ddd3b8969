"""Known records: what need not be said to the database again.

Every event names its record's parents, and most parents are there since their own events. What was
merged once stays merged, whoever writes meanwhile: merging is idempotent and takes nothing back.
That a row is gone all the same, with a database that was restored from an older copy, a foreign key
notices.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from tracer.merge import Key, Reduced
from tracer.records import Kind
from tracer.status import Status
from tracer.versions import LINKS, Fields

MAX_RECORDS = 20_000
"""How many records are known at most; the oldest are forgotten first."""


class KnownRecords:
    """Runs, and the records in them that others hang under, with their links."""

    def __init__(self) -> None:
        self._links: dict[tuple[Kind, Key], Fields] = {}

    def news_of(self, reduced: Reduced) -> Reduced:
        """Return `reduced` without what was merged before."""
        return {
            kind: {
                key: version
                for key, version in versions.items()
                if not self._holds(kind, key, version)
            }
            for kind, versions in reduced.items()
        }

    def keep(self, reduced: Reduced, runs: Collection[UUID]) -> None:
        """Take note of what was merged, and committed, into `runs`."""
        for kind, versions in reduced.items():
            if kind is Kind.TOOL_CALL:  # as many as all others together, and seldom named again
                continue
            for key, version in versions.items():
                if key[0] in runs:
                    links = {name: version.get(name) for name in LINKS[kind]}
                    self._links.setdefault((kind, key), {}).update(
                        (name, link) for name, link in links.items() if link is not None
                    )
        while len(self._links) > MAX_RECORDS:
            del self._links[next(iter(self._links))]

    def forget(self) -> None:
        """Know nothing any more."""
        self._links.clear()

    def _holds(self, kind: Kind, key: Key, version: Fields) -> bool:
        if version.get("status", Status.UNKNOWN) is not Status.UNKNOWN:
            return False
        links = self._links.get((kind, key))
        return links is not None and all(
            value is None or links.get(name) == value
            for name, value in version.items()
            if name != "status"
        )
