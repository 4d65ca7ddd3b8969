"""Convert records to JSON objects and back, for export and import.

Names, times and numbers are those of the REST API. An object contains all fields of the record,
except `projectId` and `revision`, which are meaningful only in one database. `status` is the stored
status, which is never `abandoned`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.alias_generators import to_camel

from tracer.errors import BadRequest
from tracer.records.events import (
    FROM_THE_WIRE,
    Attempt,
    CostUsd,
    FailFastTuple,
    Position,
    Text,
    Timestamp,
    Tokens,
)
from tracer.records.input_errors import validation_message
from tracer.records.merge import RULES, Fields, Key, Reduced, merged, parents
from tracer.records.record_classes import ALL_RECORDS, RECORDS, Int64, Kind, Run
from tracer.records.status import Status

_ERROR = ("error_type", "error_message", "error_stack")
_DATABASE_FIELDS = ("project_id", "revision")


@dataclass(frozen=True)
class ExportedRecord:
    """A record that was read from an export."""

    kind: Kind
    root_plan_id: UUID
    record_id: UUID
    fields: Fields
    """The fields of the record, by their names in `tracer.records.record_classes`. For a run, also
    `source` (see `run_json`)."""


def _own_fields(kind: Kind, record: type[Any]) -> tuple[str, ...]:
    """Return the names of the fields that an export contains, ids first."""
    excluded = (*_DATABASE_FIELDS, *_ERROR)
    names = ("root_plan_id", RULES[kind].id_field, *record.model_fields)
    return tuple(name for name in dict.fromkeys(names) if name not in excluded)


_FIELDS = {kind: _own_fields(kind, record) for kind, record in ALL_RECORDS.items()}
_NAMES = {name: to_camel(name) for fields in _FIELDS.values() for name in fields}


def record_json(kind: Kind, record: Any) -> bytes:
    """Return a record as a JSON object on one line. For a run, use `run_json`."""
    error = [getattr(record, name) for name in _ERROR]
    shown = None if error == [None] * 3 else dict(zip(_Error.model_fields, error, strict=True))
    return _dumped({**_shown(kind, record), "error": shown})


def run_json(run: Run, source: str, is_agent_work: bool) -> bytes:
    """Return a run as a JSON object on one line.

    Args:
        run: The run.
        source: `spans` if the run's records are a projection of spans; otherwise `events`.
        is_agent_work: Whether the list of runs includes the run by default.
    """
    return _dumped({**_shown(Kind.RUN, run), "source": source, "isAgentWork": is_agent_work})


def _shown(kind: Kind, record: Any) -> dict[str, Any]:
    fields = {_NAMES[name]: getattr(record, name) for name in _FIELDS[kind]}
    return {"kind": kind, **fields}


def _dumped(fields: dict[str, Any]) -> bytes:
    return orjson.dumps(fields, default=_number, option=orjson.OPT_UTC_Z)


def _number(cost: Any) -> float | str:
    """Return a cost as a number, or as text if a float cannot represent it exactly."""
    assert isinstance(cost, Decimal)
    as_float = float(cost)
    return as_float if Decimal(repr(as_float)) == cost else format(cost.normalize(), "f")


class _Error(BaseModel):
    model_config = ConfigDict(extra="forbid")

    type: Text | None = None
    message: Text | None = None
    stack: Text | None = None


_BY_ANNOTATION: dict[Any, Any] = {
    str | None: Text | None,
    list[str]: FailFastTuple[Text],
    datetime | None: Timestamp | None,
    int | None: Position | None,
    Int64 | None: Tokens | None,
    Decimal | None: CostUsd | None,
}
_BY_NAME: dict[str, Any] = {"attempt": Attempt | None}
"""Types for the validation of exported fields, if the type in the record class is less strict."""

_RUN_FIELDS = (*RULES[Kind.RUN].fields, "root_plan_id", "recorded_at", "cancel_requested_at")
"""The fields of a run that are imported. The other fields are copied from the root plan, or are
sums."""


def _shape(kind: Kind) -> type[BaseModel]:
    """Return the pydantic model that validates exported records of a kind."""
    fields: dict[str, Any] = {"kind": (Literal[kind], ...)}
    for name in _FIELDS[kind]:
        field = ALL_RECORDS[kind].model_fields[name]
        type_ = _BY_NAME.get(name) or _BY_ANNOTATION.get(field.annotation, field.annotation)
        default = ... if field.is_required() else field.get_default(call_default_factory=True)
        fields[name] = (type_, default)
        if kind is Kind.RUN and name not in _RUN_FIELDS:
            fields[name] = (Any, None)
    if kind is Kind.RUN:
        fields |= {"source": (Literal["events", "spans"], ...), "is_agent_work": (bool, True)}
    else:
        fields["error"] = (_Error | None, None)
    config = ConfigDict(extra="forbid", alias_generator=to_camel)
    shape: type[BaseModel] = create_model(f"Exported_{kind}", __config__=config, **fields)
    return shape


_SHAPES = {kind: _shape(kind) for kind in Kind}


def read_record(sent: Any) -> ExportedRecord:
    """Parse an exported record.

    Raises:
        BadRequest: The record is not valid. The message does not quote its values.
    """
    kind = sent.get("kind") if isinstance(sent, dict) else None
    if not isinstance(kind, str) or kind not in _SHAPES:
        raise BadRequest(f"The `kind` of a record must be one of {', '.join(Kind)} or span.")
    try:
        parsed = _SHAPES[Kind(kind)].model_validate(sent, context=FROM_THE_WIRE)
    except ValidationError as error:
        raise BadRequest(validation_message(error)) from None
    except RecursionError:
        raise BadRequest("It is nested too deeply.") from None
    return _exported(
        Kind(kind), {name: getattr(parsed, name) for name in type(parsed).model_fields}
    )


def _exported(kind: Kind, fields: Fields) -> ExportedRecord:
    del fields["kind"]
    root_plan_id = fields.pop("root_plan_id")
    if kind is Kind.RUN:
        read = {name: fields[name] for name in (*_RUN_FIELDS, "source") if name in fields}
        return ExportedRecord(kind, root_plan_id, root_plan_id, _listed(kind, read))
    error = fields.pop("error") or _Error()
    fields |= dict(zip(_ERROR, (error.type, error.message, error.stack), strict=True))
    record_id = fields.pop(RULES[kind].id_field)
    problem = _link_problem(kind, root_plan_id, record_id, fields)
    if problem is not None:
        raise BadRequest(problem)
    return ExportedRecord(kind, root_plan_id, record_id, _listed(kind, fields))


def _listed(kind: Kind, fields: Fields) -> Fields:
    return fields | {name: sorted(set(fields[name])) for name in RULES[kind].union}


def _link_problem(kind: Kind, root_plan_id: UUID, record_id: UUID, fields: Fields) -> str | None:
    """Return why the links of a record violate a constraint of the tables; None if they do not."""
    if kind is Kind.PLAN:
        opener = fields["tool_call_id"] or fields["opened_by_step_id"]
        if record_id == root_plan_id:
            has_parent = fields["parent_plan_id"] or opener
            return "A root plan must not have a parent or an opener." if has_parent else None
        if fields["started_at"] and not (fields["parent_plan_id"] and opener):
            return "A sub-plan that started must have parentPlanId and an opener."
        if fields["parent_plan_id"] == record_id:
            return "A plan must not be its own parent."
        return None
    link = "plan_id" if kind is Kind.STEP else "step_id"
    if fields[link] is None and fields["status"] is not Status.UNKNOWN:
        return f"{to_camel(link)} may be missing only if the status is unknown (a placeholder)."
    if kind is Kind.TOOL_CALL and fields["parent_tool_call_id"] == record_id:
        return "A tool call must not be an item of itself."
    return None


def reduce_records(records: Collection[ExportedRecord]) -> Reduced:
    """Merge exported records. Add their runs, and placeholders for missing parents.

    A run's `recorded_at` is the earliest of its records. Placeholders have none.
    """
    reduced: Reduced = {kind: {} for kind in Kind}
    for each in records:
        run_id = each.root_plan_id
        _add(reduced, Kind.RUN, (run_id, run_id), {"recorded_at": each.fields["recorded_at"]})
        _add(reduced, each.kind, (run_id, each.record_id), each.fields)
    for each in records:
        run_id = each.root_plan_id
        for kind, record_id, fields in parents(each.kind, run_id, each.fields):
            reduced[kind].setdefault((run_id, record_id), fields)
    return reduced


def _add(reduced: Reduced, kind: Kind, key: Key, fields: Fields) -> None:
    earlier = reduced[kind].get(key)
    reduced[kind][key] = fields if earlier is None else merge_exported(kind, earlier, fields)


def merge_exported(kind: Kind, one: Fields, other: Fields) -> Fields:
    """Merge two exported versions of a record, including fields that events do not set."""
    result = merged(kind, one, other)
    for name in LEAST[kind]:
        values = [fields[name] for fields in (one, other) if fields.get(name) is not None]
        result[name] = min(values, default=None)
    times = [fields["abandoned_at"] for fields in (one, other) if fields.get("abandoned_at")]
    result.pop("abandoned_at", None)
    if times and not result["status"].is_ending:
        result["abandoned_at"] = min(times)
    if kind in INFERRED:
        result["inferred"] = bool(one.get("inferred") or other.get("inferred"))
        evidence = [fields.get("inferred_from") or "" for fields in (one, other)]
        result["inferred_from"] = max(evidence) or None
    return result


LEAST = dict.fromkeys(RECORDS, ("recorded_at",)) | {
    Kind.RUN: ("recorded_at", "cancel_requested_at")
}
"""Times that events do not contain. If two records differ, the earlier time is kept."""


def dead_recorders(reduced: Reduced) -> list[tuple[UUID, UUID | None, datetime]]:
    """Return the recorders that abandoned records, according to an export.

    Returns:
        For each abandoned record, the id of its run, the id of its recorder (if any), and the time
        at which the recorder's lease expired.
    """
    return [
        (run_id, version.get("recorder_id"), version["abandoned_at"])
        for kind in RECORDS
        for (run_id, _), version in reduced[kind].items()
        if version.get("abandoned_at") and version.get("status") in (Status.PENDING, Status.RUNNING)
    ]


INFERRED = {kind for kind, record in RECORDS.items() if "inferred" in record.model_fields}
"""The kinds of record that state whether their parent was reconstructed."""
