"""How two versions of a record become one.

Every store applies the same rules, so that any permutation, split or repetition of the same
events ends in the same records. `RULES` says the rule of each field; the memory store and the
reduction of a batch apply it in Python (`merged`), the Postgres store generates its SQL from it.
`docs/protocol.md` shows the table to other languages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import gt, lt
from typing import Any
from uuid import UUID

from tracer.events import Event
from tracer.records import Kind
from tracer.status import Status
from tracer.versions import Fields, versions

Key = tuple[UUID, UUID]
"""What tells records of one kind and project apart: the run's id and the record's own."""

Reduced = dict[Kind, dict[Key, Fields]]
"""At most one version of each record, by kind and key."""


@dataclass(frozen=True)
class MergeRules:
    """The rule of each field of one kind of record.

    Two versions merge field by field, null being less than everything, text compared by its
    UTF-8 bytes, a status by its rank.
    """

    id_field: str
    """The record's own id."""
    greatest: tuple[str, ...]
    """Start fields: the greater value stays. They are recorded once, so they seldom differ."""
    ending: tuple[str, ...]
    """One tuple, compared from left to right: the greater one stays as a whole."""
    least: tuple[str, ...] = ("started_at",)
    """The lesser value stays; null gives way."""
    latest: tuple[str, ...] = ()
    """A second tuple, like `ending`: what is said of the latest attempt."""
    late: tuple[str, ...] = ()
    """A third tuple, for what happened after the ending."""
    union: tuple[str, ...] = ()
    """Lists whose items are put together, sorted, each once."""

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The tuples: of each, one version's stays as a whole."""
        return tuple(group for group in (self.ending, self.latest, self.late) if group)

    @cached_property
    def outdoes(self) -> dict[str, Callable[[Any, Any], bool]]:
        """What says of each field that merges by itself whether a value replaces another."""
        return dict.fromkeys(self.greatest, gt) | dict.fromkeys(self.least, lt)

    @property
    def fields(self) -> tuple[str, ...]:
        """Every field that events can fill, the id aside."""
        return (*self.greatest, *self.least, *chain(*self.groups), *self.union)


_ERROR = ("error_type", "error_message", "error_stack")
_ENDING = ("status", "finished_at", "reason")

RULES: dict[Kind, MergeRules] = {
    Kind.RUN: MergeRules(
        id_field="root_plan_id",
        greatest=("session_id", "subject", "traceparent"),
        ending=(),
        least=(),
        union=("tags", "masked"),
    ),
    Kind.PLAN: MergeRules(
        id_field="plan_id",
        greatest=(
            "parent_plan_id",
            "tool_call_id",
            "opened_by_step_id",
            "position",
            "depth",
            "title",
            "user_request",
            "agent_name",
            "template",
            "template_version",
            "recorder_id",
        ),
        ending=(*_ENDING, "summary", *_ERROR),
        union=("masked",),
    ),
    Kind.STEP: MergeRules(
        id_field="step_id",
        greatest=("plan_id", "position", "agent_name", "request", "recorder_id"),
        ending=(*_ENDING, "result", *_ERROR),
        union=("masked",),
    ),
    Kind.THINK_ACT: MergeRules(
        id_field="think_act_id",
        greatest=("step_id", "position", "requested_model", "messages", "recorder_id"),
        ending=(
            *_ENDING,
            "thought",
            "model",
            "input_tokens",
            "output_tokens",
            "cost_usd",
            *_ERROR,
        ),
        union=("masked",),
    ),
    Kind.TOOL_CALL: MergeRules(
        id_field="tool_call_id",
        greatest=(
            "step_id",
            "think_act_id",
            "parent_tool_call_id",
            "position",
            "provider_call_id",
            "name",
            "tool_type",
            "arguments",
            "recorder_id",
        ),
        ending=(
            *_ENDING,
            "result",
            *_ERROR,
            "short_circuited_by",
            "state_changes",
            "still_running",
        ),
        latest=("attempt", "effective_arguments"),
        late=("late_finished_at", "late_status", "late_result"),
        union=("forged_arguments", "masked"),
    ),
}


def reduce_events(events: Iterable[Event]) -> Reduced:
    """Return what `events` say of each record, the parents that they name included."""
    reduced: Reduced = {kind: {} for kind in Kind}
    for event in events:
        for kind, record_id, fields in versions(event):
            kept = reduced[kind].setdefault((event.root_plan_id, record_id), fields)
            if kept is not fields:
                _merge_into(kind, kept, fields)
    return reduced


def merged(kind: Kind, one: Fields, other: Fields) -> Fields:
    """Return the merger of two versions of one record; neither is changed."""
    result = dict(one)
    _merge_into(kind, result, other)
    return result


def _merge_into(kind: Kind, kept: Fields, other: Fields) -> None:
    rules = RULES[kind]
    for field, value in other.items():
        outdoes = rules.outdoes.get(field)
        if outdoes is None or value is None:
            continue
        if kept.get(field) is None or outdoes(value, kept[field]):
            kept[field] = value
    for group in rules.groups:
        if _is_greater(group, other, kept):
            for field in group:
                kept[field] = other.get(field)
    for field in rules.union:
        kept[field] = sorted({*(kept.get(field) or ()), *(other.get(field) or ())})


def _is_greater(group: tuple[str, ...], one: Fields, other: Fields) -> bool:
    """Return whether the one's tuple is greater than the other's."""
    for field in group:
        mine, theirs = one.get(field), other.get(field)
        if mine is theirs or mine == theirs:
            continue
        if mine is None or theirs is None:
            return theirs is None
        return mine.rank > theirs.rank if isinstance(mine, Status) else bool(mine > theirs)
    return False
