"""The conditions of the lists, as SQL."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tracer.status import ABANDONED
from tracer.storage.agreements import SEARCHED, check_status
from tracer.storage.tables import ALWAYS, TABLES
from tracer.store import Cursor, RunFilter, ToolCallFilter
from tracer.text import storable


@dataclass
class Where:
    """Conditions that all hold, and the values that they name."""

    conditions: list[str]
    values: dict[str, Any] = field(default_factory=dict)

    def add(self, condition: str, **values: Any) -> None:
        """Add a condition unless its values are None."""
        if None not in values.values():
            self.conditions.append(condition)
            self.values |= values

    def __str__(self) -> str:
        return " AND ".join(f"({condition})" for condition in self.conditions)


def runs_where(wanted: RunFilter, project_id: int, cursor: str | None) -> Where:
    """Return which runs a page shows; the table is named `run`."""
    where = Where(["run.project_id = %(project_id)s", "run.deleted_at IS NULL"])
    where.values["project_id"] = project_id
    if not wanted.other_traces:
        where.add("run.is_agent_work")
    _add_status(where, "run", wanted.status)
    _add_times(where, "run", wanted.since, wanted.until)
    where.add(
        f"{_in_run('plan_execution_record', 'agent_name = %(agent)s')}"
        f" OR {_in_run('agent_execution_record', 'agent_name = %(agent)s')}",
        agent=_stored(wanted.agent),
    )
    where.add(_in_run("act_tool_info", "name = %(tool)s"), tool=_stored(wanted.tool))
    where.add(
        " OR ".join(
            _in_run(TABLES[kind], " OR ".join(f"{column} ILIKE %(q)s" for column in columns))
            for kind, columns in SEARCHED.items()
        ),
        q=_anywhere(wanted.q),
    )
    _add_cursor(where, "run.recorded_at, run.root_plan_id", cursor)
    return where


def tool_calls_where(wanted: ToolCallFilter, project_id: int, cursor: str | None) -> Where:
    """Return which tool calls a page shows; the table is named `call`."""
    where = Where(["call.project_id = %(project_id)s", f"call.{ALWAYS}"])
    where.values["project_id"] = project_id
    _add_status(where, "call", wanted.status)
    _add_times(where, "call", wanted.since, wanted.until)
    where.add("call.root_plan_id = %(run)s", run=wanted.root_plan_id)
    for column, value in (
        ("name", _stored(wanted.name)),
        ("provider_call_id", _stored(wanted.provider_call_id)),
    ):
        # The index has a prefix of each.
        where.add(
            f"left(call.{column}, 100) = left(%({column})s, 100) AND call.{column} = %({column})s",
            **{column: value},
        )
    _add_cursor(where, "call.recorded_at, call.tool_call_id", cursor)
    return where


def _in_run(table: str, condition: str) -> str:
    return (
        f"EXISTS (SELECT FROM {table} AS part WHERE part.project_id = run.project_id"
        f" AND part.root_plan_id = run.root_plan_id AND part.{ALWAYS} AND ({condition}))"
    )


def _stored(text: str | None) -> str | None:
    return None if text is None else storable(text)


def _anywhere(text: str | None) -> str | None:
    """Return the pattern that finds `text` itself within longer text."""
    if text is None:
        return None
    literal = storable(text).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{literal}%"


def _add_status(where: Where, table: str, shown: str | None) -> None:
    check_status(shown)
    is_abandoned = f"{table}.abandoned_at IS NOT NULL AND {table}.status < 'cancelled'"
    if shown == ABANDONED:
        where.add(is_abandoned)
    else:
        where.add(f"{table}.status = %(status)s AND NOT ({is_abandoned})", status=shown)


def _add_times(where: Where, table: str, since: datetime | None, until: datetime | None) -> None:
    moment = f"coalesce({table}.started_at, {table}.recorded_at)"
    where.add(f"{moment} >= %(since)s", since=since)
    where.add(f"{moment} < %(until)s", until=until)


def _add_cursor(where: Where, order: str, cursor: str | None) -> None:
    if cursor is not None:
        after = Cursor.decode(cursor)
        where.add(
            f"({order}) < (%(after_moment)s, %(after_id)s)",
            after_moment=after.recorded_at,
            after_id=after.record_id,
        )
