"""Runs sorted by a value, and counted over time, in SQL.

These orders have no index: the values change with each event, and an index would make each change
more expensive. Instead, the latest runs are read, up to a limit, and sorted.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from math import inf

from tracer.records.pages import Page, SortedCursor
from tracer.records.record_classes import Run
from tracer.records.run_histogram import INTERVALS, MOST_BINS, RunBin, RunHistogram
from tracer.storage.postgres.connection.pool import SyncConnection
from tracer.storage.postgres.connection.row_records import columns, select
from tracer.storage.postgres.connection.row_security import standing_of_sync
from tracer.storage.postgres.read.lists import Listing, in_best_order
from tracer.storage.postgres.schema.record_tables import IS_FAILED, START
from tracer.store import RunFilter, RunOrder

MOST_RUNS = 100_000
"""The most runs that a sorted page or a histogram examines, latest first."""
MOST_CHECKED = 10_000
"""The most runs that are examined if the filter has conditions that are checked run by run."""

_TOKENS = "input_tokens + output_tokens"
_VALUES = {
    "start": f"extract(epoch FROM {START}) * 1000000",
    "duration": "extract(epoch FROM finished_at - started_at) * 1000000",
    "tokens": _TOKENS,
    "cost": "CASE WHEN cost_usd <> 0 OR unpriced_calls = 0 THEN cost_usd END",
    "toolCalls": "tool_calls",
}
"""The compared value of each order, as SQL; null if a run has no such value."""


def read_sorted_page(
    connection: SyncConnection, listing: Listing, order: RunOrder, limit: int, cursor: str | None
) -> Page[Run]:
    """Return a page of runs in an order other than the latest first.

    Args:
        connection: In a transaction with one snapshot.
        listing: Selects the runs of all pages. `cursor` is applied to the sorted runs.
        order: The order.
        limit: The largest number of runs.
        cursor: The cursor of the previous page.
    """
    after = None if cursor is None else SortedCursor.decode(cursor, order)
    missing = -inf if order.is_descending else inf
    listing = _bounded(in_best_order(connection, listing))
    place = f"coalesce(({_VALUES[order.removeprefix('-')]})::float8, %(missing)s::float8)"
    values = {**listing.values, "missing": missing, "limit": limit + 1}
    condition = ""
    if after is not None:
        value = missing if after.value is None else after.value
        values |= {"after_value": value, "after_id": after.record_id}
        compared = "<" if order.is_descending else ">"
        condition = (
            f"WHERE (place, root_plan_id) {compared} (%(after_value)s::float8, %(after_id)s::uuid)"
        )
    direction = "DESC" if order.is_descending else "ASC"
    found = f"""SELECT root_plan_id, place FROM (
            SELECT root_plan_id, {place} AS place {_examined(connection, listing)}
        ) AS placed {condition}
        ORDER BY place {direction}, root_plan_id {direction} LIMIT %(limit)s"""
    rows = connection.execute(found, values).fetchall()
    ids = [root_plan_id for root_plan_id, _ in rows[:limit]]
    query = f"""SELECT {columns(Run)} FROM run
        WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(ids)s)"""
    runs = select(connection, Run, query, {**listing.values, "ids": ids})
    by_id = {run.root_plan_id: run for run in runs}
    next_cursor = None
    if len(rows) > limit:
        last_id, last_place = rows[limit - 1]
        last_value = None if last_place == missing else last_place
        next_cursor = SortedCursor(order, last_value, last_id).encode()
    return Page(
        [by_id[each] for each in ids],
        next_cursor,
        searched_back_to=_examined_back_to(connection, listing),
    )


def read_histogram(connection: SyncConnection, listing: Listing, wanted: RunFilter) -> RunHistogram:
    """Count the runs of a listing in intervals of their start times, with at most three queries."""
    listing = _bounded(in_best_order(connection, listing))
    query = f"""WITH found AS MATERIALIZED (
            SELECT {START} AS at, {IS_FAILED} AS has_failed
            {_examined(connection, listing)}
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
        SELECT seconds, bin, count(at), count(at) FILTER (WHERE has_failed)
        FROM chosen LEFT JOIN found ON true CROSS JOIN LATERAL date_bin(
            seconds * interval '1 second', at, '1970-01-01 00:00:00+00'::timestamptz
        ) AS bin
        GROUP BY seconds, bin ORDER BY bin"""
    parameters = {
        **listing.values,
        "range_start": wanted.since,
        "range_end": wanted.until,
        "intervals": list(INTERVALS),
    }
    rows = connection.execute(query, parameters).fetchall()
    bins = [RunBin(start, runs, failed) for _, start, runs, failed in rows if start is not None]
    return RunHistogram(
        count=sum(each.runs for each in bins),
        interval_seconds=rows[0][0],
        bins=bins,
        counted_back_to=_examined_back_to(connection, listing),
    )


def _bounded(listing: Listing) -> Listing:
    most = MOST_CHECKED if listing.wanted.conditions else MOST_RUNS
    return replace(listing, most_examined=most)


def _examined(connection: SyncConnection, listing: Listing) -> str:
    """Return the SQL, from `FROM` on, that selects the matching runs among the examined ones."""
    matching = f"WHERE {listing.wanted}" if listing.wanted.conditions else ""
    if matching and standing_of_sync(connection).is_spread:
        return f"""FROM run WHERE root_plan_id IN (
            SELECT root_plan_id {listing.rows} LIMIT {listing.most_examined}
        ) AND {listing.wanted}"""
    return f"FROM (SELECT * {listing.rows} LIMIT {listing.most_examined}) AS run {matching}"


def _examined_back_to(connection: SyncConnection, listing: Listing) -> datetime | None:
    """Return the start of the last examined run; None if all runs were examined."""
    query = f"SELECT {START} {listing.rows} LIMIT 1 OFFSET {listing.most_examined}"
    row = connection.execute(query, listing.row_values).fetchone()
    return None if row is None else row[0]
