"""The lists of runs and calls: their SQL, their orders and their previews."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from typing import Any, TypeVar
from uuid import UUID

import orjson
from psycopg.rows import class_row, dict_row

from tracer.lineage.tree import FailedRecord, RecordKey, explained_by, failure_origins
from tracer.records import ABANDONED, Kind, Run, Status
from tracer.records.pages import (
    INTERVALS,
    MOST_BINS,
    MOST_VALUES,
    PREVIEW_CHARACTERS,
    Cursor,
    FacetValue,
    NotableRecord,
    OpenCall,
    OtherParts,
    Page,
    RunBin,
    RunFacets,
    RunFailure,
    RunHistogram,
    RunNotes,
    RunOrder,
    RunPreview,
    SortedCursor,
    label_of,
    label_of_actions,
    moment_of,
    open_call,
    whole_preview,
)
from tracer.records.record_classes import Totals
from tracer.storage.postgres.pool import SyncConnection
from tracer.storage.postgres.rows import (
    check_status,
    columns,
    select,
)
from tracer.storage.postgres.run_tables import abandoned_at, shown_status
from tracer.storage.postgres.session import standing_of_sync
from tracer.storage.postgres.tables import (
    ALWAYS,
    IS_FAILED,
    IS_HEAD,
    IS_OPEN,
    MAY_BE_OPEN,
    MAY_HAVE_FAILED,
    NOT_DELETED,
    RUN_NOT_DELETED,
    START,
    TABLES,
    is_text,
)
from tracer.store import RunFilter, ToolCallFilter, ToolCallPreview
from tracer.text import beginning, storable

# --- The lists, in SQL.
#
# A list follows an index, latest start first, and examines a bounded number of rows. So the cost
# does not grow with the table, even if nothing matches. A frequent criterion has a separate index,
# which contains only matching rows. The indexes for a session, a subject or a provider call id are
# in another order: the matching rows are read from there and sorted, unless there are too many.

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
    moment: str = START
    """The SQL of the time by which the list is ordered."""
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
    def unordered(self) -> Listing:
        """This listing, changed to let the planner choose an index."""
        conditions = [*self.along.conditions, *self.among.conditions]
        along = Where(conditions, self.along.values | self.among.values)
        return replace(self, along=along, among=Where())

    @property
    def rows(self) -> str:
        """The SQL of the rows to examine, from `FROM` to `ORDER BY`."""
        source = self.table
        if self.among.conditions:
            # A subquery, or the planner may scan the whole list in order and discard nearly all
            # rows: its estimate has the number of matching rows, but not their positions.
            source = f"(SELECT * FROM {source} WHERE {self.among} OFFSET 0) AS {source}"
        return f"""FROM {source} WHERE {self.along}
            ORDER BY {self.moment} DESC, {self.id_field} DESC"""


def list_of_runs(
    wanted: RunFilter,
    project_id: int,
    cursor: str | None,
    *,
    is_spread: bool = False,
    among: Sequence[UUID] | None = None,
) -> Listing:
    """Return the listing of runs. Its SQL refers to the table as `run`.

    Args:
        wanted: The criteria.
        project_id: The project.
        cursor: The cursor of the previous page.
        is_spread: Whether Citus distributes the tables. Criteria then examine only the first run
            of a piece of work, because Citus cannot join it with the others.
        among: The runs that a search found; None: all runs.
    """
    listing = Listing("run", "root_plan_id", most_examined=500)
    listing.along.add("project_id = %(project_id)s", project_id=project_id)
    listing.along.add(RUN_NOT_DELETED)
    _add_among(listing, session_id=wanted.session, subject=wanted.subject)
    listing.among.add("root_plan_id = ANY(%(among)s)", among=among)
    _add_range(listing, wanted, cursor)
    if wanted.all_parts:
        _add_status(listing, wanted.status)
    else:
        listing.along.add(IS_HEAD)
        _add_whole_status(listing, wanted.status)
    looked_for = listing.wanted
    if not wanted.other_traces:
        # They have an index too, because they may be few among other traces.
        (listing.along if wanted.status is None else looked_for).add("is_agent_work")
    reaches_parts = not (wanted.all_parts or is_spread)

    def in_run(table: str, condition: str) -> str:
        return _in_run(table, condition, reaches_parts)

    looked_for.add(
        f"{in_run('plan_execution_record', 'agent_name = %(agent)s')}"
        f" OR {in_run('agent_execution_record', 'agent_name = %(agent)s')}",
        agent=_stored(wanted.agent),
    )
    looked_for.add(in_run("act_tool_info", "name = %(tool)s"), tool=_stored(wanted.tool))
    in_parts = (
        "EXISTS (SELECT 1 FROM run_part_of_day AS part WHERE part.project_id = run.project_id"
        " AND part.root_plan_id = run.root_plan_id AND {} OFFSET 0)"
    )
    for condition, name, value in (
        ("part.runs > 0 AND part.origin_name = left(%(origin)s, 200)", "origin", wanted.origin),
        ("part.error_type = left(%(error_type)s, 200)", "error_type", wanted.error_type),
        # The row of the head names the models of the whole piece of work.
        (
            f"{'part.calls > 0 AND' if wanted.all_parts else ''}"
            " left(%(model)s, 200) = ANY(part.models)",
            "model",
            wanted.model,
        ),
    ):
        looked_for.add(in_parts.format(condition), **{name: _stored(value)})
    for condition, name, value in (
        ("%(tag)s = ANY({}.tags)", "tag", wanted.tag),
        ("{}.service_name = %(service)s", "service", wanted.service),
        ("{}.service_version = %(version)s", "version", wanted.service_version),
        ("{}.deployment_environment = %(environment)s", "environment", wanted.environment),
        (_HAS_KEY, "metadata_key", wanted.metadata_key),
    ):
        looked_for.add(_of_run(condition, reaches_parts), **{name: _stored(value)})
    cost = _value_of(RunOrder.CHEAPEST, reaches_parts)
    looked_for.add(f"{cost} >= %(min_cost)s", min_cost=wanted.min_cost)
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
        if standing_of_sync(connection).is_spread:  # Citus can join no subquery with the runs
            return listing.unordered
        more = f"SELECT FROM {listing.table} WHERE {listing.among} LIMIT 1 OFFSET {MOST_SORTED}"
        result = connection.execute(more, listing.row_values)
        if result.fetchone() is not None:
            return listing.searched
    return listing


def page_query(columns: str, listing: Listing, *, is_spread: bool) -> str:
    """Return the query for a page of a list; see `read_page`."""
    if is_spread:
        listing = listing.unordered
    if not listing.wanted.conditions:
        return f"SELECT {columns} {listing.rows} LIMIT %(limit)s"
    if not is_spread:
        return f"""SELECT {columns} FROM (
            SELECT *, {listing.moment} AS at {listing.rows} LIMIT {listing.most_examined}
        ) AS {listing.table} WHERE {listing.wanted}
        ORDER BY at DESC, {listing.id_field} DESC LIMIT %(limit)s"""
    # Citus checks the other conditions on the shards of the runs.
    return f"""SELECT {columns} FROM {listing.table}
        WHERE (root_plan_id, {listing.id_field}) IN (
            SELECT root_plan_id, {listing.id_field} {listing.rows} LIMIT {listing.most_examined}
        ) AND {listing.wanted}
        ORDER BY {START} DESC, {listing.id_field} DESC LIMIT %(limit)s"""


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
    query = page_query(columns, listing, is_spread=standing_of_sync(connection).is_spread)
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


_OTHERS = f"""FROM run AS other WHERE other.project_id = run.project_id
        AND other.head_id = run.root_plan_id AND other.{RUN_NOT_DELETED}"""
"""The runs that continue a run, in a subquery."""


def _in_run(table: str, condition: str, reaches_parts: bool) -> str:
    """Return the condition that a run has a record; or one of the runs that continue it."""

    def within(runs: str) -> str:
        return (
            f"EXISTS (SELECT FROM {table} AS part WHERE part.project_id = run.project_id"
            f" AND part.root_plan_id = {runs} AND part.{ALWAYS} AND ({condition})"
            # Keeps the planner from reading the whole table once, instead of each run.
            " OFFSET 0)"
        )

    own = within("run.root_plan_id")
    if not reaches_parts:
        return own
    others = within(f"ANY(ARRAY(SELECT other.root_plan_id {_OTHERS}))")
    return f"({own} OR whole_status IS NOT NULL AND {others})"


_METADATA = r"regexp_replace({0}.run_metadata, '(?<!\\)\\u0000', '␛0000', 'g')"
"""A run's metadata in a form that is valid as `jsonb`, which has no NUL."""
_HAS_KEY = f"""CASE WHEN pg_input_is_valid({_METADATA}, 'jsonb')
    THEN {_METADATA}::jsonb -> %(metadata_key)s::text END IS NOT NULL"""
"""The condition that a run's metadata has a key, whose value may be null."""


def _of_run(condition: str, reaches_parts: bool) -> str:
    """Return a condition on a run; or on any of the runs that continue it."""
    own = condition.format("run")
    if not reaches_parts:
        return own
    others = f"EXISTS (SELECT {_OTHERS} AND {condition.format('other')})"
    return f"{own} OR whole_status IS NOT NULL AND {others}"


def _stored(text: str | None) -> str | None:
    return None if text is None else storable(text)


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


def _add_whole_status(listing: Listing, shown: str | None) -> None:
    """Restrict a list of heads to a status of the whole piece of work; None: all."""
    check_status(shown)
    if shown is None:
        return
    is_abandoned = f"{abandoned_at('run')} IS NOT NULL"
    if shown == Status.FAILED:
        listing.along.add(MAY_HAVE_FAILED)
        own = IS_FAILED
    elif shown == ABANDONED:
        listing.along.add(MAY_BE_OPEN)
        own = is_abandoned
    else:
        if not Status(shown).is_ending:
            listing.along.add(MAY_BE_OPEN)
        own = f"status = %(status)s AND NOT ({is_abandoned})"
    conditions = listing.along if shown == Status.FAILED else listing.wanted
    conditions.add(
        f"whole_status = %(whole)s OR whole_status IS NULL AND {own}", whole=shown, status=shown
    )


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


# --- Runs sorted by a value, and counted over time, in SQL.
#
# These orders have no index: the values change with each event, and an index would make each change
# more expensive. Instead, the latest runs are read, up to a limit, and sorted.

MOST_RUNS = 100_000
"""The most runs that a sorted page or a histogram examines, latest first."""
MOST_CHECKED = 10_000
"""The most runs that are examined if the filter has conditions that are checked run by run."""

_TOKENS = "input_tokens + output_tokens"
_COST = "CASE WHEN {cost} <> 0 OR {unpriced} = 0 THEN {cost} END"
_VALUES = {
    "start": f"extract(epoch FROM {START}) * 1000000",
    "duration": "extract(epoch FROM finished_at - started_at) * 1000000",
    "tokens": _TOKENS,
    "cost": _COST.format(cost="cost_usd", unpriced="unpriced_calls"),
    "toolCalls": "tool_calls",
}
"""The compared value of each order, as SQL; null if a run has no such value."""

_ENDINGS = ", ".join(f"'{status}'" for status in Status if status.is_ending)

_OF_WHOLE = {
    "duration": f"""CASE WHEN whole_status IN ({_ENDINGS}) THEN extract(epoch FROM
        (SELECT greatest(run.finished_at, max(other.finished_at)) {_OTHERS}) - started_at
    ) * 1000000 END""",
    "tokens": f"""{_TOKENS}
    + (SELECT coalesce(sum(other.input_tokens + other.output_tokens), 0) {_OTHERS})""",
    "cost": "(SELECT "
    + _COST.format(
        cost="(run.cost_usd + sum(other.cost_usd))",
        unpriced="run.unpriced_calls + sum(other.unpriced_calls)",
    )
    + f" {_OTHERS})",
    "toolCalls": f"tool_calls + (SELECT coalesce(sum(other.tool_calls), 0) {_OTHERS})",
}
"""The same values of a whole piece of work, for heads that other runs continue."""


def _value_of(order: RunOrder, wholes: bool) -> str:
    name = order.removeprefix("-")
    own = _VALUES[name]
    if not wholes or name not in _OF_WHOLE:
        return own
    return f"CASE WHEN whole_status IS NULL THEN {own} ELSE {_OF_WHOLE[name]} END"


def read_sorted_page(
    connection: SyncConnection,
    listing: Listing,
    order: RunOrder,
    limit: int,
    cursor: str | None,
    *,
    wholes: bool = True,
) -> Page[Run]:
    """Return a page of runs in an order other than the latest first.

    Args:
        connection: In a transaction with one snapshot.
        listing: Selects the runs of all pages. `cursor` is applied to the sorted runs.
        order: The order.
        limit: The largest number of runs.
        cursor: The cursor of the previous page.
        wholes: Whether to compare the values of whole pieces of work. On Citus, runs are always
            compared alone.
    """
    after = None if cursor is None else SortedCursor.decode(cursor, order)
    missing = -inf if order.is_descending else inf
    listing = _bounded(in_best_order(connection, listing))
    wholes = wholes and not standing_of_sync(connection).is_spread
    sort_value = f"coalesce(({_value_of(order, wholes)})::float8, %(missing)s::float8)"
    values = {**listing.values, "missing": missing, "limit": limit + 1}
    condition = ""
    if after is not None:
        value = missing if after.value is None else after.value
        values |= {"after_value": value, "after_id": after.record_id}
        compared = "<" if order.is_descending else ">"
        edge = "(%(after_value)s::float8, %(after_id)s::uuid)"
        condition = f"WHERE (sort_value, root_plan_id) {compared} {edge}"
    direction = "DESC" if order.is_descending else "ASC"
    found = f"""SELECT root_plan_id, sort_value FROM (
            SELECT root_plan_id, {sort_value} AS sort_value {_examined(connection, listing)}
        ) AS examined {condition}
        ORDER BY sort_value {direction}, root_plan_id {direction} LIMIT %(limit)s"""
    rows = connection.execute(found, values).fetchall()
    ids = [root_plan_id for root_plan_id, _ in rows[:limit]]
    query = f"""SELECT {columns(Run)} FROM run
        WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(ids)s)"""
    runs = select(connection, Run, query, {**listing.values, "ids": ids})
    by_id = {run.root_plan_id: run for run in runs}
    next_cursor = None
    if len(rows) > limit:
        last_id, last_sort_value = rows[limit - 1]
        last_value = None if last_sort_value == missing else last_sort_value
        next_cursor = SortedCursor(order, last_value, last_id).encode()
    return Page(
        [by_id[each] for each in ids],
        next_cursor,
        searched_back_to=_examined_back_to(connection, listing),
    )


def read_histogram(connection: SyncConnection, listing: Listing, wanted: RunFilter) -> RunHistogram:
    """Count the runs of a listing in intervals of their start times, with at most three queries."""
    listing = _bounded(in_best_order(connection, listing))
    wholes = not (wanted.all_parts or standing_of_sync(connection).is_spread)
    status = shown_status("run") if wanted.all_parts else _WHOLE_STATUS
    query = f"""WITH found AS MATERIALIZED (
            SELECT {START} AS at, {status} AS status,
                {_sum_of("cost_usd", wholes)} AS cost_usd,
                {_sum_of("unpriced_calls", wholes)} AS unpriced_calls,
                {_value_of(RunOrder.LONGEST, wholes)} AS duration
            {_examined(connection, listing)}
        ), total AS (
            SELECT count(*) FILTER (WHERE status = 'failed') AS failed,
                count(*) FILTER (WHERE status = 'abandoned') AS abandoned,
                coalesce(sum(cost_usd), 0) AS cost_usd,
                coalesce(sum(unpriced_calls), 0)::bigint AS unpriced_calls,
                (percentile_disc(0.95) WITHIN GROUP (ORDER BY duration) / 1000)::float8 AS p95_ms
            FROM found
        ), range AS (
            SELECT extract(epoch FROM coalesce(%(range_end)s::timestamptz, max(at))
                - coalesce(%(range_start)s::timestamptz, min(at))) AS seconds FROM found
        ), chosen AS (
            SELECT coalesce(
                (SELECT min(each) FROM unnest(%(intervals)s::bigint[]) AS each, range
                    WHERE each * {MOST_BINS} >= coalesce(seconds, 0)),
                {INTERVALS[-1]}
            ) AS seconds
        )
        SELECT seconds, bin, count(at), count(at) FILTER (WHERE status = 'failed'), {_TOTAL}
        FROM chosen CROSS JOIN total LEFT JOIN found ON true CROSS JOIN LATERAL date_bin(
            seconds * interval '1 second', at, '1970-01-01 00:00:00+00'::timestamptz
        ) AS bin
        GROUP BY seconds, bin, {_TOTAL} ORDER BY bin"""
    parameters = {
        **listing.values,
        "range_start": wanted.since,
        "range_end": wanted.until,
        "intervals": list(INTERVALS),
    }
    rows = connection.execute(query, parameters).fetchall()
    bins = [RunBin(*row[1:4]) for row in rows if row[1] is not None]
    return RunHistogram(
        sum(each.runs for each in bins),
        interval_seconds=rows[0][0],
        bins=bins,
        counted_back_to=_examined_back_to(connection, listing),
        **dict(zip(_TOTALS, rows[0][4:], strict=True)),
    )


_WHOLE_STATUS = f"coalesce(whole_status, {shown_status('run')})"
_TOTALS = ("failed", "abandoned", "cost_usd", "unpriced_calls", "p95_ms")
_TOTAL = ", ".join(f"total.{name}" for name in _TOTALS)


def _sum_of(column: str, wholes: bool) -> str:
    if not wholes:
        return column
    others = f"(SELECT coalesce(sum(other.{column}), 0) {_OTHERS})"
    return f"CASE WHEN whole_status IS NULL THEN {column} ELSE {column} + {others} END"


_FACETS = {
    "service": "service_name",
    "version": "service_version",
    "environment": "deployment_environment",
    "user": "subject",
    "tag": "unnest(tags)",
    "metadata_key": "run_metadata",
}
"""The facets that come from a run's own row."""

_PART_FACETS = {
    "agent": "unnest(part.agents)",
    "model": "unnest(part.models)",
    "error_type": "part.error_type",
}


def read_facets(connection: SyncConnection, listing: Listing, wanted: RunFilter) -> RunFacets:
    """Count the values of the newest 10,000 runs of a listing that match, with three queries."""
    listing = replace(in_best_order(connection, listing), most_examined=MOST_CHECKED)
    status = shown_status("run") if wanted.all_parts else _WHOLE_STATUS
    own = " UNION ALL ".join(f"SELECT '{name}', {sql} FROM found" for name, sql in _FACETS.items())
    of_parts = " UNION ALL ".join(
        f"""SELECT '{name}', {sql} FROM found JOIN run_part_of_day AS part
            ON part.project_id = found.project_id AND part.root_plan_id = found.root_plan_id
        WHERE part.runs > 0"""
        for name, sql in _PART_FACETS.items()
    )
    query = f"""WITH found AS MATERIALIZED (
            SELECT project_id, root_plan_id, service_name, service_version, deployment_environment,
                subject, tags, run_metadata, {status} AS status {_examined(connection, listing)}
        )
        SELECT facet, value, count(*) FROM (
            SELECT 'status', status FROM found UNION ALL {own} UNION ALL {of_parts}
        ) AS each (facet, value) WHERE value IS NOT NULL GROUP BY 1, 2"""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for facet, value, count in connection.execute(query, listing.values).fetchall():
        # JSON that cannot be read has no keys.
        values = _keys_of(value) if facet == "metadata_key" else [value]
        counts[facet].update(dict.fromkeys(values, count))
    facets = {
        name: [
            FacetValue(value=value, count=count)
            for value, count in sorted(each.items(), key=lambda item: (-item[1], item[0]))
        ][:MOST_VALUES]
        for name, each in counts.items()
    }
    runs = sum(counts["status"].values())
    back_to = _examined_back_to(connection, listing)
    return RunFacets(runs=runs, counted_back_to=back_to, **facets)


def _keys_of(metadata: str) -> list[str]:
    with suppress(orjson.JSONDecodeError):
        found = orjson.loads(metadata)
        return [storable(key) for key in found] if isinstance(found, dict) else []
    return []


def _bounded(listing: Listing) -> Listing:
    most = MOST_CHECKED if listing.wanted.conditions else MOST_RUNS
    return replace(listing, most_examined=most)


def _examined(connection: SyncConnection, listing: Listing) -> str:
    """Return the SQL, from `FROM` on, that selects the matching runs among the examined ones."""
    wanted = f"{listing.wanted}" if listing.wanted.conditions else "true"
    if standing_of_sync(connection).is_spread:
        return f"""FROM run WHERE root_plan_id IN (
            SELECT root_plan_id {listing.rows} LIMIT {listing.most_examined}
        ) AND {wanted}"""
    return f"FROM (SELECT * {listing.rows} LIMIT {listing.most_examined}) AS run WHERE {wanted}"


def count_running(
    connection: SyncConnection, project_id: int, wanted: RunFilter
) -> tuple[int, int]:
    """Return how many runs are running, and how many of these recorded nothing for ten minutes.

    Args:
        connection: In a transaction with one snapshot.
        project_id: The project.
        wanted: Other criteria. Only the latest 10,000 open runs are examined.
    """
    spread = standing_of_sync(connection).is_spread
    wanted = replace(wanted, status=Status.RUNNING)
    listing = _bounded(list_of_runs(wanted, project_id, None, is_spread=spread))
    query = f"""SELECT count(*), count(*) FILTER (
            WHERE changed_at < statement_timestamp() - interval '10 minutes'
        ) {_examined(connection, listing)}"""
    [(running, stuck)] = connection.execute(query, listing.values).fetchall()
    return running, stuck


def _examined_back_to(connection: SyncConnection, listing: Listing) -> datetime | None:
    """Return the start of the last examined run; None if all runs were examined."""
    query = f"SELECT {START} {listing.rows} LIMIT 1 OFFSET {listing.most_examined}"
    row = connection.execute(query, listing.row_values).fetchone()
    return None if row is None else row[0]


# --- Previews of runs for the list, computed from the failed and running records of the runs.


def run_notes(
    records: Iterable[NotableRecord], seen: Mapping[UUID, datetime]
) -> dict[UUID, RunNotes]:
    """Return the notes of the runs that have any.

    Args:
        records: The failed records of the runs, and the running ones of those that have not ended.
        seen: The last heartbeat of the recorders of the latter.
    """
    of_run: dict[UUID, list[NotableRecord]] = defaultdict(list)
    for record in records:
        of_run[record.root_plan_id].append(record)
    return {run_id: _notes(run_id, of_run[run_id], seen.get(run_id)) for run_id in {*of_run, *seen}}


def _notes(run_id: UUID, records: Sequence[NotableRecord], seen_at: datetime | None) -> RunNotes:
    failed: dict[RecordKey, NotableRecord] = {
        (each.kind, each.record_id): each for each in records if each.has_failed
    }
    origins = failure_origins(
        (
            FailedRecord(
                key,
                explained_by(each.tool_call, each.think_act, each.step, each.plan),
                each.finished_at,
            )
            for key, each in failed.items()
        ),
        (Kind.PLAN, run_id),
    )
    failure = None
    if origins and origins[0].depth is not None:
        began = failed[origins[0].key]
        failure = RunFailure(
            kind=began.kind,
            id=began.record_id,
            name=began.name,
            reason=began.reason,
            error_type=began.error_type,
            error_message=_preview_text(began.error_message),
            depth=origins[0].depth,
        )
    waits_for = open_call(records)
    return RunNotes(
        failures=len(origins),
        handled_failures=sum(origin.is_handled for origin in origins),
        failure=failure,
        open_call=None
        if waits_for is None
        else OpenCall(
            kind=waits_for.kind,
            id=waits_for.record_id,
            name=waits_for.name,
            arguments=_preview_text(waits_for.arguments),
            started_at=waits_for.started_at,
        ),
        seen_at=seen_at,
    )


def _preview_text(text: str | None, characters: int = PREVIEW_CHARACTERS) -> str | None:
    return None if text is None else beginning(text, characters)


# --- Read the previews of the run list: at most four queries for a page.

_READ = PREVIEW_CHARACTERS + 1
"""How many characters of a text are read: one more than is shown, to detect a longer text."""


_OF_ROOT = "FILTER (WHERE plan_id = root_plan_id)"

_PLANS = f"""
SELECT root_plan_id, max(left(user_request, %(read)s)) {_OF_ROOT} AS request,
    max(left(summary, %(read)s)) {_OF_ROOT} AS answer,
    count(*) FILTER (WHERE plan_id <> root_plan_id) AS sub_agents
FROM plan_execution_record
WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s)
GROUP BY root_plan_id"""

_TITLES = f"""
SELECT run.root_plan_id, run.title, left(plan.user_request, %(read)s),
    coalesce(run.agent_name, run.service_name)
FROM run LEFT JOIN plan_execution_record AS plan ON plan.project_id = run.project_id
    AND plan.root_plan_id = run.root_plan_id AND plan.plan_id = run.root_plan_id
WHERE run.project_id = %(project_id)s AND run.root_plan_id = ANY(%(runs)s)
    AND run.{RUN_NOT_DELETED}"""

_ACTIONS = f"""
SELECT call.root_plan_id, coalesce(plan.agent_name, call.name), count(*)
FROM act_tool_info AS call LEFT JOIN plan_execution_record AS plan
    ON plan.project_id = call.project_id AND plan.root_plan_id = call.root_plan_id
    AND plan.tool_call_id = call.tool_call_id
WHERE call.project_id = %(project_id)s AND call.root_plan_id = ANY(%(runs)s)
    AND call.{ALWAYS} AND coalesce(plan.agent_name, call.name) IS NOT NULL
GROUP BY 1, 2 ORDER BY 1, min(call.started_at), 2"""

# Citus joins the leases, which are on the coordinator, with what it has read from the workers.
# Spans, and events that name no recorder, may come without heartbeats: their arrival is none.
_SEEN = """
WITH recorder AS (
    SELECT part.project_id, part.root_plan_id, part.recorder_id, run.changed_at
    FROM recorder_run AS part JOIN run
        ON run.project_id = part.project_id AND run.root_plan_id = part.root_plan_id
    WHERE part.project_id = %(project_id)s AND part.root_plan_id = ANY(%(open)s)
)
SELECT root_plan_id, max(seen_at)
FROM recorder JOIN recorder_lease USING (project_id, recorder_id)
WHERE recorder_id <> root_plan_id OR seen_at > changed_at + interval '1 second'
GROUP BY root_plan_id"""

_NOTABLE = {
    Kind.PLAN: """plan_id AS record_id, agent_name AS name, NULL::text AS arguments,
    tool_call_id AS tool_call, NULL::uuid AS think_act, opened_by_step_id AS step,
    parent_plan_id AS plan""",
    Kind.STEP: """step_id AS record_id, agent_name AS name, NULL::text AS arguments,
    NULL::uuid AS tool_call, NULL::uuid AS think_act, NULL::uuid AS step, plan_id AS plan""",
    Kind.THINK_ACT: """think_act_id AS record_id, coalesce(model, requested_model) AS name,
    NULL::text AS arguments, NULL::uuid AS tool_call, NULL::uuid AS think_act, step_id AS step,
    NULL::uuid AS plan""",
    Kind.TOOL_CALL: f"""tool_call_id AS record_id, name, left(arguments, {_READ}) AS arguments,
    parent_tool_call_id AS tool_call, think_act_id AS think_act, step_id AS step,
    NULL::uuid AS plan""",
}
"""The fields of `NotableRecord` that differ between the kinds of records."""


def _notable_records(condition: str) -> str:
    """Return the query for some records of all kinds, with the fields of `NotableRecord`."""
    return " UNION ALL ".join(
        f"""
SELECT root_plan_id, '{kind}' AS kind, status = 'failed' AS has_failed, started_at, finished_at,
    reason, error_type, left(error_message, {_READ}) AS error_message,
    {columns_of_kind}
FROM {TABLES[kind]}
WHERE project_id = %(project_id)s AND {condition}"""
        for kind, columns_of_kind in _NOTABLE.items()
    )


FAILED_RECORDS = _notable_records(f"root_plan_id = ANY(%(runs)s) AND {IS_FAILED}")

RUNNING_RECORDS = _notable_records(
    f"root_plan_id = ANY(%(open)s) AND {ALWAYS} AND status = 'running'"
)


_LATEST = "ORDER BY at DESC, root_plan_id DESC"

# The coordinator of Citus groups the rows: the parts of a head are on several shards.
OTHER_PARTS = f"""
WITH part AS MATERIALIZED (
    SELECT head_id, root_plan_id, status, is_inside, reason, finished_at, {START} AS at,
        {", ".join(Totals.model_fields)}, {abandoned_at("run")} AS abandoned_at,
        (SELECT left(summary, %(read)s) FROM plan_execution_record AS root
            WHERE root.project_id = run.project_id AND root.root_plan_id = run.root_plan_id
                AND root.plan_id = run.root_plan_id AND NOT run.is_inside) AS answer
    FROM run
    WHERE project_id = %(project_id)s AND head_id = ANY(%(heads)s) AND {RUN_NOT_DELETED}
)
SELECT head_id, array_agg(root_plan_id {_LATEST}) AS ids,
    coalesce(array_agg(root_plan_id {_LATEST}) FILTER (WHERE {IS_OPEN}), '{{}}') AS open,
    (array_agg(root_plan_id {_LATEST}) FILTER (WHERE NOT is_inside))[1] AS last_id,
    (array_agg(reason {_LATEST}) FILTER (WHERE NOT is_inside))[1] AS reason,
    (array_agg(answer {_LATEST}) FILTER (WHERE answer <> ''))[1] AS answer,
    max(finished_at) AS finished_at, max(abandoned_at) AS abandoned_at,
    {", ".join(f"sum({name}) AS {name}" for name in Totals.model_fields)}
FROM part GROUP BY head_id"""


def read_run_previews(
    connection: SyncConnection,
    project_id: int,
    runs: Sequence[Run],
    *,
    all_parts: bool = False,
    characters: int = PREVIEW_CHARACTERS,
) -> list[RunPreview]:
    """Return the previews of `runs` that the run list shows.

    Args:
        connection: In a transaction in which every query sees the same state.
        project_id: The project of the runs.
        runs: The runs.
        all_parts: Whether each preview describes its run alone. Otherwise that of a head describes
            the whole piece of work.
        characters: The maximum length of a request and of an answer.
    """
    if not runs:
        return []
    ids = [run.root_plan_id for run in runs]
    heads = [run.root_plan_id for run in runs if run.whole_status is not None and not all_parts]
    parameters: dict[str, Any] = {"project_id": project_id, "runs": ids, "heads": heads}
    parameters["read"] = characters + 1
    plans = connection.cursor(row_factory=dict_row).execute(_PLANS, parameters)
    others: dict[UUID, OtherParts] = {}
    if heads:
        cursor = connection.cursor(row_factory=class_row(OtherParts))
        others = {each.head_id: each for each in cursor.execute(OTHER_PARTS, parameters)}
    open_ids = [run.root_plan_id for run in runs if not run.status.is_ending]
    parameters |= {
        "runs": [*ids, *(part for each in others.values() for part in each.ids)],
        "open": [*open_ids, *(part for each in others.values() for part in each.open)],
    }
    notable = [connection.cursor(row_factory=dict_row).execute(FAILED_RECORDS, parameters)]
    leases = None
    if parameters["open"]:
        notable.append(connection.cursor(row_factory=dict_row).execute(RUNNING_RECORDS, parameters))
        leases = connection.execute(_SEEN, parameters)
    texts = {row["root_plan_id"]: row for row in plans.fetchall()}
    records = [_notable(row) for cursor in notable for row in cursor.fetchall()]
    notes = run_notes(records, {} if leases is None else dict(leases.fetchall()))
    previews = []
    for run in runs:
        shown = dict(run) | texts.get(run.root_plan_id, {})
        preview = RunPreview(**shown | notes.get(run.root_plan_id, RunNotes())._asdict())
        if not run.status.is_ending:  # whether the run fails is not known yet
            preview.handled_failures = 0
        preview.request = _preview_text(preview.request, characters)
        preview.answer = _preview_text(preview.answer, characters)
        if found := others.get(run.root_plan_id):
            found.answer = _preview_text(found.answer, characters)
            preview = whole_preview(preview, found, notes)
        preview.label = label_of(run.title) or label_of(preview.request)
        previews.append(preview)
    nameless = {
        each.root_plan_id: each.agent_name or each.service_name
        for each in previews
        if each.label is None
    }
    labels = _labels_of_actions(connection, project_id, nameless)
    for preview in previews:
        preview.label = preview.label or labels.get(preview.root_plan_id)
    return previews


def _labels_of_actions(
    connection: SyncConnection, project_id: int, agents: Mapping[UUID, str | None]
) -> dict[UUID, str | None]:
    """Return the labels of runs without a title and a question, by their agents or services."""
    if not agents:
        return {}
    parameters = {"project_id": project_id, "runs": list(agents)}
    actions: dict[UUID, list[tuple[str, int]]] = defaultdict(list)
    for run_id, name, count in connection.execute(_ACTIONS, parameters).fetchall():
        actions[run_id].append((name, count))
    return {run_id: label_of_actions(agent, actions[run_id]) for run_id, agent in agents.items()}


def read_labels(
    connection: SyncConnection, project_id: int, runs: Sequence[UUID]
) -> dict[UUID, str | None]:
    """Return the labels of runs, as their previews have them. Deleted runs have none."""
    parameters = {"project_id": project_id, "runs": list(runs), "read": PREVIEW_CHARACTERS}
    labels: dict[UUID, str | None] = {}
    nameless: dict[UUID, str | None] = {}
    for run_id, title, request, agent in connection.execute(_TITLES, parameters).fetchall():
        labels[run_id] = label_of(title) or label_of(request)
        if labels[run_id] is None:
            nameless[run_id] = agent
    return labels | _labels_of_actions(connection, project_id, nameless)


def _notable(row: dict[str, Any]) -> NotableRecord:
    return NotableRecord(**row | {"kind": Kind(row["kind"])})
