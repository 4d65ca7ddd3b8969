"""What the views for analysts are put together from: columns with comments, joins within a run."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.records import Kind
from tracer.storage.tables import ALWAYS, IS_FAILED, IS_OPEN, METADATA, START, TABLES

Column = tuple[str, str, str]
"""A column of a view: its name, its expression, its comment."""


@dataclass(frozen=True)
class View:
    """A view for analysts."""

    name: str
    comment: str
    columns: tuple[Column, ...]
    source: str
    """The rest of its query, from `FROM` on."""


def said_of(kind: Kind, field: str) -> str:
    """Return what is said of a field of a kind of record."""
    comment = METADATA.tables[TABLES[kind]].columns[field].comment
    assert comment is not None, f"{kind} {field} has no docstring"
    return comment


def fields(kind: Kind, source: str, names: str) -> tuple[Column, ...]:
    """Return columns that are fields of a record, by their names with spaces between."""
    return tuple((name, f"{source}.{name}", said_of(kind, name)) for name in names.split())


def milliseconds(source: str) -> str:
    """Return how long a record took."""
    elapsed = f"{source}.finished_at - {source}.started_at"
    return f"(extract(epoch FROM {elapsed}) * 1000)::float8"


def shown_status(source: str) -> str:
    """Return a record's status as it is shown."""
    return (
        f"CASE WHEN {source}.abandoned_at IS NOT NULL AND {source}.{IS_OPEN}"
        f" THEN 'abandoned' ELSE {source}.status::text END"
    )


def _began(source: str) -> str:
    return START.replace("started_at", f"{source}.started_at").replace(
        "recorded_at", f"{source}.recorded_at"
    )


def outcome(source: str) -> tuple[Column, ...]:
    """Return how far a record has come, and when, spelt as indexes are where one is for it."""
    return (
        (
            "status",
            shown_status(source),
            "How far it has come, as it is shown: `unknown` (named by another record only), "
            "`pending`, `running`, `cancelled`, `failed`, `succeeded`, or `abandoned` (open when "
            "its recorder was heard no more).",
        ),
        ("is_open", f"{source}.{IS_OPEN}", "Whether it has not ended. Chooses an index."),
        ("is_failed", f"{source}.{IS_FAILED}", "Whether it failed. Chooses an index."),
        *fields(Kind.PLAN, source, "reason started_at finished_at"),
        (
            "duration_ms",
            milliseconds(source),
            "Milliseconds from start to end; null while it is open.",
        ),
        *fields(Kind.PLAN, source, "abandoned_at recorder_id recorded_at masked"),
    )


def began_at(source: str, where: str = "") -> Column:
    """Return the moment that indexes go along.

    Args:
        source: The record.
        where: What else has to be asked for that they do.
    """
    return (
        "began_at",
        _began(source),
        f"When it started, or else was recorded: ranges of this{where} go along an index.",
    )


def errors(source: str) -> tuple[Column, ...]:
    """Return what went wrong."""
    return fields(Kind.PLAN, source, "error_type error_message error_stack")


def place(source: str) -> tuple[Column, ...]:
    """Return what says which run it is."""
    return fields(Kind.RUN, source, "project_id root_plan_id")


def in_run(source: str) -> str:
    """Return the join with the run; nothing of a deleted run is shown.

    By way of the index of what belongs to a run, which has a condition that is always true.
    """
    return (
        f" JOIN run ON run.project_id = {source}.project_id"
        f" AND run.root_plan_id = {source}.root_plan_id AND run.deleted_at IS NULL"
        f" AND {source}.{ALWAYS}"
    )


def joined(kind: Kind, alias: str, key: str, source: str, link: str) -> str:
    """Return the join with a record of the same run, where there is one."""
    return (
        f" LEFT JOIN {TABLES[kind]} AS {alias} ON {alias}.project_id = {source}.project_id"
        f" AND {alias}.root_plan_id = {source}.root_plan_id AND {alias}.{key} = {source}.{link}"
    )
