"""Find the origins of failures. All functions are pure.

One failure makes several records fail: a tool call, then its step, the plan of this step, and the
tool call that started this plan. The origin is the failed record that no other failed record
explains. An origin is *handled* if a record above it did not fail.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from datetime import datetime
from typing import NamedTuple

from tracer.records.record_classes import Kind

Place = tuple[Kind, Hashable]
"""The kind and the id of a record."""


class FailedRecord(NamedTuple):
    """A failed record, and the records whose failure it explains."""

    place: Place
    parents: tuple[Place, ...]
    at: datetime | None
    """When the record ended."""


class Origin(NamedTuple):
    """The origin of a failure: a failed record without a failed record below it."""

    place: Place
    depth: int | None
    """The number of agents above the one that failed: 0 if the root agent itself failed.

    None if the failure was handled."""

    @property
    def is_handled(self) -> bool:
        """Whether a record above the origin did not fail."""
        return self.depth is None


def explained_by(
    tool_call: Hashable | None,
    think_act: Hashable | None,
    step: Hashable | None,
    plan: Hashable | None,
) -> tuple[Place, ...]:
    """Return the records above a failed record that may have failed because of it.

    Args:
        tool_call: The tool call that started the failed plan, or the batch that contains the failed
            tool call.
        think_act: The model call that chose the failed tool call. It may have succeeded, so the
            step is returned as well.
        step: The step that contains the failed record, or that handed over to the failed plan.
        plan: The plan of the failed step, or the parent of the failed plan. If a step handed over,
            this step may have succeeded, so the parent plan is returned as well.
    """
    if tool_call is not None:
        return ((Kind.TOOL_CALL, tool_call),)
    above = ((Kind.THINK_ACT, think_act), (Kind.STEP, step), (Kind.PLAN, plan))
    return tuple(place for place in above if place[1] is not None)


def failure_origins(failed: Iterable[FailedRecord], root: Place) -> list[Origin]:
    """Return the origins of a run's failures, the most important first.

    Origins that made the run fail precede handled origins. Then deeper origins precede others, and
    earlier origins precede later ones.

    Args:
        failed: All failed records of the run.
        root: The kind and id of the root plan.
    """
    by_place = {each.place: each for each in failed}
    below: dict[Place, list[Place]] = defaultdict(list)
    for each in by_place.values():
        for parent in each.parents:
            if parent in by_place:
                below[parent].append(each.place)
    depths: dict[Place, int] = {root: 0} if root in by_place else {}
    waiting = list(depths)
    for place in waiting:  # which grows meanwhile
        for child in below[place]:
            if child not in depths:
                depths[child] = depths[place] + (child[0] is Kind.PLAN)
                waiting.append(child)
    origins = [Origin(place, depths.get(place)) for place in by_place if not below[place]]
    return sorted(origins, key=lambda origin: _order(origin, by_place[origin.place].at))


def _order(origin: Origin, at: datetime | None) -> tuple[bool, int, bool, float, str]:
    moment = 0.0 if at is None else at.timestamp()
    return origin.is_handled, -(origin.depth or 0), at is None, moment, str(origin.place[1])
