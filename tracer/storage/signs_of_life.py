"""Signs of life: who wrote to which run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

from tracer.events import Event

Part = tuple[UUID, UUID]
"""A recorder and a run that it wrote to. Where no recorder is named, the run stands for it."""

Signs = Mapping[Part, datetime | None]
"""When the latest event of each happened, by the recorder's clock; None where nothing says that."""

NO_SIGNS: Signs = {}


def signs_of(events: Iterable[Event]) -> Signs:
    """Return the signs of life that events are."""
    signs: dict[Part, datetime | None] = {}
    for event in events:
        run_id = event.root_plan_id
        if event.recorder_id is None:
            signs[run_id, run_id] = None
        else:
            part = event.recorder_id, run_id
            earlier = signs.get(part)
            signs[part] = event.at if earlier is None else max(earlier, event.at)
    return signs
