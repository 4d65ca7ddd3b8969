"""The lists, in SQL.

A list follows an index, latest start first, and examines a bounded number of rows. So the cost does
not grow with the table, even if nothing matches. A frequent criterion has a separate index, which
contains only matching rows. The indexes for a session, a subject or a provider call id are in
another order: the matching rows are read from there and sorted, unless there are too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tracer.records.pages import Cursor, Page
from tracer.records.record_classes import Kind, Run
from tracer.records.status import ABANDONED, Status
from tracer.storage.postgres.connection.pool import SyncConnection
from tracer.storage.postgres.connection.row_records import select
from tracer.storage.postgres.connection.row_security import standing_of_sync
from tracer.storage.postgres.schema.lease_tables import abandoned_at
from tracer.storage.postgres.schema.record_tables import (
    ALWAYS,
    IS_FAILED,
    IS_OPEN,
    NOT_DELETED,
    RUN_NOT_DELETED,
    START,
    TABLES,
    is_text,
)
from tracer.storage.store_rules import (
    SEARCHED,
    SEARCHED_CHARACTERS,
    SEARCHED_OF_ROOT_PLAN,
    check_status,
    moment_of,
)
from tracer.store import RunFilter, ToolCallFilter, ToolCallPreview
from tracer.text import storable

L = TypeVar("L", Run, ToolCallPreview)

MOST_SORTED = 10_000
"""How many rows a page may sort. If more rows match, the page examines rows in the order of the
list instead."""


@dataclass
class Where:
    """Conditions joined by AND, and the values of their parameters."""

    conditions: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    def add(self, condition: str, **values: Any) -> None:
        """Add a condition, unless one of its values is None."""
        if None not in values.values():
            self.conditions.append(condition)
            self.values |= values

    def __str__(self) -> str:
        return " AND ".join(f"({condition})" for condition in self.conditions)


@dataclass
class Listing:
    """The rows that a list examines, and the ones that match."""

    table: str
    id_field: str
    most_examined: int
    """How many rows a page examines at most."""
    among: Where = field(default_factory=Where)
    """Conditions whose index has another order than the list. The rows that match are sorted."""
    along: Where = field(default_factory=Where)
    """Conditions whose index has the order of the list."""
    wanted: Where = field(default_factory=Where)
    """Conditions without an index, which are checked row by row."""

    @property
    def values(self) -> dict[str, Any]:
        """The values of all parameters."""
        return self.row_values | self.wanted.values

    @property
    def row_values(self) -> dict[str, Any]:
        """The values of the parameters of `rows`."""
        return self.among.values | self.along.values

    @property
    def searched(self) -> Listing:
        """This listing, changed to check the conditions of `among` row by row."""
        conditions = [*self.among.conditions, *self.wanted.conditions]
        wanted = Where(conditions, self.among.values | self.wanted.values)
        return replace(self, among=Where(), wanted=wanted)

    @property
    def rows(self) -> str:
        """The SQL of the rows to examine, from `FROM` to `ORDER BY`."""
        source = self.table
        if self.among.conditions:
            # A subquery, or the planner may scan the whole list in order and discard nearly all
            # rows: its estimate has the number of matching rows, but not their positions.
            source = f"(SELECT * FROM {source} WHERE {self.among} OFFSET 0) AS {source}"
        return f"""FROM {source} WHERE {self.along}
            ORDER BY {START} DESC, {self.id_field} DESC"""


def list_of_runs(wanted: RunFilter, project_id: int, cursor: str | None) -> Listing:
    """Return the listing of runs. Its SQL refers to the table as `run`."""
    listing = Listing("run", "root_plan_id", most_examined=500)
    listing.along.add("project_id = %(project_id)s", project_id=project_id)
    listing.along.add(RUN_NOT_DELETED)
    _add_among(listing, session_id=wanted.session, subject=wanted.subject)
    _add_range(listing, wanted, cursor)
    _add_status(listing, wanted.status)
    looked_for = listing.wanted
    if not wanted.other_traces:
        # They have an index too, because they may be few among other traces.
        (listing.along if wanted.status is None else looked_for).add("is_agent_work")
    looked_for.add(
        f"{_in_run('plan_execution_record', 'agent_name = %(agent)s')}"
        f" OR {_in_run('agent_execution_record', 'agent_name = %(agent)s')}",
        agent=_stored(wanted.agent),
    )
    looked_for.add(_in_run("act_tool_info", "name = %(tool)s"), tool=_stored(wanted.tool))
    looked_for.add("%(tag)s = ANY(tags)", tag=_stored(wanted.tag))
    looked_for.add("service_name = %(service)s", service=_stored(wanted.service))
    looked_for.add("service_version = %(version)s", version=_stored(wanted.service_version))
    looked_for.add("deployment_environment = %(place)s", place=_stored(wanted.environment))
    looked_for.add(
        " OR ".join(
            (
                *(_in_run(TABLES[kind], _mentions(columns)) for kind, columns in SEARCHED.items()),
                _in_run(
                    TABLES[Kind.PLAN],
                    f"part.plan_id = run.root_plan_id AND ({_mentions(_OF_ROOT_PLAN)})",
                ),
            )
        ),
        q=_anywhere(wanted.q),
    )
    return listing


def list_of_tool_calls(wanted: ToolCallFilter, project_id: int, cursor: str | None) -> Listing:
    """Return the listing of tool calls."""
    listing = Listing("act_tool_info", "tool_call_id", most_examined=5_000)
    listing.along.add("project_id = %(project_id)s", project_id=project_id)
    listing.along.add(NOT_DELETED)
    _add_range(listing, wanted, cursor)
    _add_status(listing, wanted.status)
    listing.along.add(f"root_plan_id = %(run)s AND {ALWAYS}", run=wanted.root_plan_id)
    listing.along.add(is_text("name", "name"), name=_stored(wanted.name))
    _add_among(listing, provider_call_id=wanted.provider_call_id)
    return listing


def in_best_order(connection: SyncConnection, listing: Listing) -> Listing:
    """Return the listing in the form that costs less.

    If more rows match the conditions of `among` than a page may sort, the result checks these
    conditions row by row instead.
    """
    if listing.among.conditions:
        more = f"SELECT FROM {listing.table} WHERE {listing.among} LIMIT 1 OFFSET {MOST_SORTED}"
        result = connection.execute(more, listing.row_values)
        if result.fetchone() is not None:
            return listing.searched
    return listing


def read_page(
    connection: SyncConnection, kind: type[L], columns: str, listing: Listing, limit: int
) -> Page[L]:
    """Return a page of a list.

    Args:
        connection: In a transaction with one snapshot.
        kind: The class of the items.
        columns: The columns to read, as SQL.
        listing: The listing.
        limit: The largest number of items.
    """
    listing = in_best_order(connection, listing)
    query = f"SELECT {columns} {listing.rows} LIMIT %(limit)s"
    if listing.wanted.conditions:
        query = f"""SELECT {columns} FROM (
            SELECT *, {START} AS at {listing.rows} LIMIT {listing.most_examined}
        ) AS {listing.table} WHERE {listing.wanted}
        ORDER BY at DESC, {listing.id_field} DESC LIMIT %(limit)s"""
        if standing_of_sync(connection).is_spread:  # which looks below the runs where these are
            query = f"""SELECT {columns} FROM {listing.table}
            WHERE (root_plan_id, {listing.id_field}) IN (
                SELECT root_plan_id, {listing.id_field} {listing.rows} LIMIT {listing.most_examined}
            ) AND {listing.wanted}
            ORDER BY {START} DESC, {listing.id_field} DESC LIMIT %(limit)s"""
    items = select(connection, kind, query, {**listing.values, "limit": limit + 1})
    if len(items) > limit:
        last = items[limit - 1]
        edge = Cursor(moment_of(last), getattr(last, listing.id_field))
        return Page(items[:limit], edge.encode())
    if listing.wanted.conditions:
        last_examined = f"""SELECT {START}, {listing.id_field} {listing.rows}
            LIMIT 1 OFFSET {listing.most_examined - 1}"""
        cursor = connection.execute(last_examined, listing.row_values)
        if row := cursor.fetchone():
            edge = Cursor(*row)
            return Page(items, edge.encode(), searched_back_to=edge.moment)
    return Page(items, None)


_OF_ROOT_PLAN = [f"left({text}, {SEARCHED_CHARACTERS})" for text in SEARCHED_OF_ROOT_PLAN]


def _in_run(table: str, condition: str) -> str:
    return (
        f"EXISTS (SELECT FROM {table} AS part WHERE part.project_id = run.project_id"
        f" AND part.root_plan_id = run.root_plan_id AND part.{ALWAYS} AND ({condition})"
        # Keeps the planner from reading the whole table once, instead of each run.
        " OFFSET 0)"
    )


def _mentions(columns: Sequence[str]) -> str:
    return " OR ".join(f"{column} ILIKE %(q)s" for column in columns)


def _stored(text: str | None) -> str | None:
    return None if text is None else storable(text)


def _anywhere(text: str | None) -> str | None:
    """Return the ILIKE pattern for text that contains `text` literally."""
    if text is None:
        return None
    literal = storable(text).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{literal}%"


def _add_among(listing: Listing, **texts: str | None) -> None:
    """Restrict a list to the rows whose columns have the given texts. Each column has an index."""
    for column, value in texts.items():
        listing.among.add(
            f"project_id = %(project_id)s AND {is_text(column, column)}",
            **{column: _stored(value)},
        )


def _add_status(listing: Listing, shown: str | None) -> None:
    """Restrict a list to a status that the API shows, such as `abandoned`; None: all."""
    check_status(shown)
    if shown is None:
        return
    indexed = listing.along
    is_abandoned = f"{abandoned_at(listing.table)} IS NOT NULL"
    if shown == Status.FAILED:
        indexed.add(IS_FAILED)
    elif shown == ABANDONED:
        indexed.add(IS_OPEN)
        listing.wanted.add(is_abandoned)
    else:
        if not Status(shown).is_ending:
            indexed.add(IS_OPEN)
        listing.wanted.add(f"status = %(status)s AND NOT ({is_abandoned})", status=shown)


def _add_range(listing: Listing, wanted: RunFilter | ToolCallFilter, cursor: str | None) -> None:
    """Restrict a list to a range of time, and to rows after a cursor."""
    listing.along.add(f"{START} >= %(since)s", since=wanted.since)
    listing.along.add(f"{START} < %(until)s", until=wanted.until)
    if cursor is not None:
        after = Cursor.decode(cursor)
        listing.along.add(
            f"({START}, {listing.id_field}) < (%(after_moment)s, %(after_id)s)",
            after_moment=after.moment,
            after_id=after.record_id,
        )
