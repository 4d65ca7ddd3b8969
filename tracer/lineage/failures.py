"""Find the origins of failures. Pure functions.

One failure makes several records fail: a tool call, the step that made it, the plan of that step,
the tool call that opened that plan. The origin of a failure is the failed record that no other
failed record explains. An origin is handled if a record above it did not fail.
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
    """A failed record, and the records that its failure explains if they failed, too."""

    place: Place
    parents: tuple[Place, ...]
    at: datetime | None
    """When it ended."""


class Origin(NamedTuple):
    """A failed record that has no failed record below it: the origin of a failure."""

    place: Place
    depth: int | None
    """How many agents are above it, 0 if the root agent failed by itself; None if handled."""

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
        tool_call: The tool call that opened the failed record, or that contains it as an item of a
            batch.
        think_act: The round that chose the failed tool call. The round may have succeeded, so the
            step is returned, too.
        step: The step that contains the failed record, or that handed over to it.
        plan: The plan of a step, or the parent of a plan. The step that handed over to a plan may
            have succeeded, so the parent is returned, too.
    """
    if tool_call is not None:
        return ((Kind.TOOL_CALL, tool_call),)
    above = ((Kind.THINK_ACT, think_act), (Kind.STEP, step), (Kind.PLAN, plan))
    return tuple(place for place in above if place[1] is not None)


def failure_origins(failed: Iterable[FailedRecord], root: Place) -> list[Origin]:
    """Return the origins of a run's failures.

    Origins that made the run fail come first. Among these, deeper origins precede others, and then
    earlier origins precede later ones.

    Args:
        failed: All failed records of the run.
        root: The place of the root plan.
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
