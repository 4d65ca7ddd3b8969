"""Merge events into records.

Each event sets some fields of one or more records (a *partial record*). Merge rules define how two
versions of a record become one. Each field in `tracer.records.record_classes` states its rule.
Because of these rules, any permutation, split or repetition of the same events produces the same
records.

`merge_records` merges events in Python, and the Postgres store generates SQL from the same rules.
`docs/reference/protocol.md` lists the rules for implementations in other languages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import gt, lt
from typing import Any
from uuid import UUID

import orjson
from pydantic import BaseModel

from tracer.records.events import (
    ChosenToolCall,
    Event,
    PlanFinished,
    PlannedStep,
    PlanStarted,
    StepFinished,
    StepStarted,
    ThoughtRecorded,
    ThoughtStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from tracer.records.masks import masked_paths, not_kept, within_depth
from tracer.records.record_classes import ALL_RECORDS, FROM_ROOT_PLAN, TEXTS, Kind, Merge, Record
from tracer.records.status import Reason, Status
from tracer.text import first_line

# --- Derive the title of a plan from its request.

TITLE_CHARACTERS = 120
"""The length of a title that is made from a request."""


def title_of(title: str | None, request: str | None) -> str | None:
    """Return the title of a plan.

    Without a recorded title, the title is the first line of the request.

    Args:
        title: The recorded title, which is returned unchanged; None if there is none.
        request: The request, in stored form (`tracer.text`).

    Returns:
        None if there is no title and no request, or if the project does not store requests.
    """
    if title or request is None:
        return title
    mark = not_kept(request)
    if mark is not None:
        request = request[: -len(mark[0])]
    if request.lstrip()[:1] in ("{", "["):  # JSON on several lines
        request = " ".join(request[: 8 * TITLE_CHARACTERS].split())
    return first_line(request, TITLE_CHARACTERS) or title


Fields = dict[str, Any]
"""Some fields of a record, by their names in its class. A missing field is null."""

Key = tuple[UUID, UUID]
"""The id of a run and the id of a record in this run. They identify a record of a given kind."""

PartialRecord = tuple[Kind, Key, Fields]
"""A record's kind and key, and some of its fields."""

Reduced = dict[Kind, dict[Key, Fields]]
"""One version of each record, by kind and key."""


@dataclass(frozen=True)
class MergeRules:
    """The fields of one kind of record, grouped by merge rule (`Merge`).

    Null is the least value. Text is compared by its UTF-8 bytes, a status by `Status.rank`.
    """

    id_field: str
    """The name of the record's own id."""
    greatest: tuple[str, ...]
    least: tuple[str, ...]
    ending: tuple[str, ...]
    latest: tuple[str, ...]
    union: tuple[str, ...]

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Groups of fields that merge as tuples. All values of a group come from one version."""
        return tuple(group for group in (self.ending, self.latest) if group)

    @cached_property
    def replaces(self) -> dict[str, Callable[[Any, Any], bool]]:
        """For each field that merges alone, a function that compares a new value with the old one.

        It returns whether the new value wins.
        """
        return dict.fromkeys(self.greatest, gt) | dict.fromkeys(self.least, lt)

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields that events can set, without the record's id."""
        return (*self.greatest, *self.least, *chain(*self.groups), *self.union)


_ENDING = tuple(
    "status finished_at reason * error_type error_message error_stack short_circuited_by"
    " state_changes still_running".split()
)
"""The order in which the fields of two endings are compared. `*` represents all other fields, in
the order of their definition."""


def _rules(kind: Kind, id_field: str) -> MergeRules:
    """Return the merge rules of a record class.

    Fields of the class itself come before fields that it inherits from `Record`.
    """
    names: dict[Merge, list[str]] = {rule: [] for rule in Merge}
    fields = ALL_RECORDS[kind].model_fields
    for name in sorted(fields, key=Record.model_fields.__contains__):
        if kind is Kind.RUN and name in FROM_ROOT_PLAN:
            continue
        for rule in fields[name].metadata:
            if isinstance(rule, Merge):
                names[rule].append(name)
    names[Merge.ENDING].sort(key=lambda name: _ENDING.index(name if name in _ENDING else "*"))
    return MergeRules(id_field, **{rule.value: tuple(names[rule]) for rule in Merge})


RULES: dict[Kind, MergeRules] = {
    kind: _rules(kind, id_field)
    for kind, id_field in [
        (Kind.RUN, "root_plan_id"),
        (Kind.PLAN, "plan_id"),
        (Kind.STEP, "step_id"),
        (Kind.THINK_ACT, "think_act_id"),
        (Kind.TOOL_CALL, "tool_call_id"),
    ]
}


LINKS = {
    Kind.RUN: {},
    Kind.PLAN: {
        "parent_plan_id": Kind.PLAN,
        "tool_call_id": Kind.TOOL_CALL,
        "opened_by_step_id": Kind.STEP,
    },
    Kind.STEP: {"plan_id": Kind.PLAN},
    Kind.THINK_ACT: {"step_id": Kind.STEP},
    Kind.TOOL_CALL: {
        "step_id": Kind.STEP,
        "think_act_id": Kind.THINK_ACT,
        "parent_tool_call_id": Kind.TOOL_CALL,
    },
}
"""For each kind of record, the fields that reference other records, with the kind that each
references."""


def partial_records(events: Iterable[Event]) -> Iterator[PartialRecord]:
    """Yield the partial records that events contain, and placeholders for their parents."""
    for event in events:
        for kind, record_id, fields in chain([_own_record(event)], _other_records(event)):
            yield kind, (event.root_plan_id, record_id), add_masked_paths(kind, fields)


def add_masked_paths(kind: Kind, fields: dict[str, Any]) -> dict[str, Any]:
    """Add the paths of masks in a record's texts to its field `masked`, and return the fields.

    Arguments and results that nest too deep are shortened first, which adds a mask.

    Args:
        kind: The kind of record.
        fields: Some fields of the record. They are changed in place.
    """
    for name in ("arguments", "result") if kind is Kind.TOOL_CALL else ():
        if name in fields:
            fields[name] = within_depth(fields[name])
    if paths := masked_paths(fields, TEXTS[kind]):
        fields["masked"] = sorted({*(fields.get("masked") or ()), *paths})
    return fields


def merge_records(records: Iterable[PartialRecord]) -> Reduced:
    """Merge partial records. Return one version of each record."""
    result: Reduced = {kind: {} for kind in Kind}
    for kind, key, fields in records:
        target = result[kind].setdefault(key, fields)
        if target is not fields:
            _merge_into(kind, target, fields)
    return result


_Record = tuple[Kind, UUID, Fields]
"""A record's kind and id, and some of its fields. The record belongs to the event's run."""

_KINDS: dict[type[BaseModel], Kind] = {
    PlanStarted: Kind.PLAN,
    PlanFinished: Kind.PLAN,
    PlannedStep: Kind.STEP,
    StepStarted: Kind.STEP,
    StepFinished: Kind.STEP,
    ThoughtStarted: Kind.THINK_ACT,
    ThoughtRecorded: Kind.THINK_ACT,
    ChosenToolCall: Kind.TOOL_CALL,
    ToolCallStarted: Kind.TOOL_CALL,
    ToolCallFinished: Kind.TOOL_CALL,
}
"""The kind of record that each class describes. The classes are events and items of events."""


_SHARED = {
    (source, kind): [name for name in rules.fields if name in source.model_fields]
    for source in _KINDS
    for kind, rules in RULES.items()
}
"""The names of the fields that exist both in a class of `_KINDS` and in a kind of record."""


def _shared(source: BaseModel, kind: Kind) -> Fields:
    return {name: getattr(source, name) for name in _SHARED[type(source), kind]}


def _own_record(event: Event) -> _Record:
    kind = _KINDS[type(event)]
    fields = _shared(event, kind)
    match event:
        case PlanFinished() | StepFinished() | ThoughtRecorded() | ToolCallFinished():
            fields["finished_at"] = event.at
            if event.error is not None:
                fields["error_type"] = event.error.type
                fields["error_message"] = event.error.message
                fields["error_stack"] = event.error.stack
        case _:
            fields["status"] = Status.RUNNING
            fields["started_at"] = event.at
    if isinstance(event, PlanStarted):
        fields["title"] = title_of(event.title, event.user_request)
    for name in RULES[kind].union:
        if name in fields:
            fields[name] = sorted(set(fields[name]))
    return kind, getattr(event, RULES[kind].id_field), fields


def _other_records(event: Event) -> Iterator[_Record]:
    recorder = {"recorder_id": event.recorder_id}
    if event.plan_id != event.root_plan_id:
        # A placeholder, so that the run can be read even if its root plan never arrives.
        yield Kind.PLAN, event.root_plan_id, {"status": Status.UNKNOWN}
    match event:
        case PlanStarted():
            yield from _around_plan(event, recorder)
        case PlanFinished():
            for step_id in event.not_reached_step_ids:
                fields = {
                    **recorder,
                    "plan_id": event.plan_id,
                    "status": Status.CANCELLED,
                    "reason": Reason.NOT_REACHED.value,
                    "finished_at": event.at,
                }
                yield Kind.STEP, step_id, fields
        case StepStarted() | StepFinished():
            yield Kind.PLAN, event.plan_id, {"status": Status.UNKNOWN}
        case _:
            yield Kind.PLAN, event.plan_id, {"status": Status.UNKNOWN}
            step = {"status": Status.UNKNOWN, "plan_id": event.plan_id}
            yield Kind.STEP, event.step_id, step
            yield from _around_call(event, recorder)


def _around_call(
    event: ThoughtStarted | ThoughtRecorded | ToolCallStarted | ToolCallFinished,
    recorder: Fields,
) -> Iterator[_Record]:
    """Yield the other records that an event of a model call or tool call describes.

    For the answer of a model, these are the tool calls that it requested. For an event of a tool
    call, they are placeholders for the parents of the call.
    """
    links = {"step_id": event.step_id}
    if isinstance(event, ThoughtRecorded):
        for position, call in enumerate(event.tool_calls):
            starts = call.status is Status.RUNNING
            fields = {
                **_shared(call, Kind.TOOL_CALL),
                **recorder,
                **links,
                "think_act_id": event.think_act_id,
                "position": position,
                "started_at": event.at if starts else None,
                "attempt": 1 if starts else None,
            }
            yield Kind.TOOL_CALL, call.tool_call_id, fields
    elif not isinstance(event, ThoughtStarted):
        parent_ids = {Kind.THINK_ACT: event.think_act_id, Kind.TOOL_CALL: event.parent_tool_call_id}
        for kind, record_id in parent_ids.items():
            if record_id is not None:
                yield kind, record_id, {"status": Status.UNKNOWN, **links}


def _around_plan(event: PlanStarted, recorder: Fields) -> Iterator[_Record]:
    """Yield the other records that the start of a plan describes.

    For a root plan, the first is the run. For a sub-plan, the first are placeholders for its
    parents. The planned steps follow.
    """
    if event.parent_plan_id is None:
        run = _shared(event, Kind.RUN)
        lists = {name: sorted(set(run[name])) for name in RULES[Kind.RUN].union if name in run}
        yield Kind.RUN, event.plan_id, run | lists
    else:
        yield Kind.PLAN, event.parent_plan_id, {"status": Status.UNKNOWN}
    if event.tool_call_id is not None:
        yield Kind.TOOL_CALL, event.tool_call_id, {"status": Status.UNKNOWN}
    if event.opened_by_step_id is not None:
        step = {"status": Status.UNKNOWN, "plan_id": event.parent_plan_id}
        yield Kind.STEP, event.opened_by_step_id, step
    for position, planned in enumerate(event.steps):
        fields = {
            **_shared(planned, Kind.STEP),
            **recorder,
            "status": Status.PENDING,
            "plan_id": event.plan_id,
            "position": position,
        }
        yield Kind.STEP, planned.step_id, fields


def _merge_into(kind: Kind, target: Fields, other: Fields) -> None:
    rules = RULES[kind]
    for field, value in other.items():
        replaces = rules.replaces.get(field)
        if replaces is None or value is None:
            continue
        if target.get(field) is None or replaces(value, target[field]):
            target[field] = value
    for group in rules.groups:
        if _wins(group, other, target):
            for field in group:
                target[field] = other.get(field)
    for field in rules.union:
        target[field] = sorted({*(target.get(field) or ()), *(other.get(field) or ())})


def _wins(group: tuple[str, ...], one: Fields, other: Fields) -> bool:
    """Return whether the values of `group` in `one` are greater, as a tuple, than in `other`."""
    for field in group:
        mine, theirs = one.get(field), other.get(field)
        if mine is theirs or mine == theirs:
            continue
        if mine is None or theirs is None:
            return theirs is None
        return mine.rank > theirs.rank if isinstance(mine, Status) else bool(mine > theirs)
    return False


# --- Records as JSON, to send them to a database.

_BATCH_BYTES = 32_000_000  # Postgres takes a gigabyte at once, and several copies of it


def json_batches(kind: Kind, records: Mapping[Key, Fields]) -> Iterator[str]:
    """Yield records as JSON arrays in the order of their keys, each small enough to send."""
    id_field = RULES[kind].id_field
    batch: list[bytes] = []
    size = 0
    for key in sorted(records):
        # A missing field is read as null. Empty lists are stored as null, too: they take no space.
        fields = records[key].items()
        row = {name: value for name, value in fields if value is not None and value != []}
        row |= {"root_plan_id": key[0], id_field: key[1]}
        encoded = orjson.dumps(row, default=str)
        if batch and size + len(encoded) > _BATCH_BYTES:
            yield f"[{b','.join(batch).decode()}]"
            batch, size = [], 0
        batch.append(encoded)
        size += len(encoded)
    if batch:
        yield f"[{b','.join(batch).decode()}]"
