"""Read pages of a search: runs that the index finds, and where they contain the words."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.errors import QueryCanceled
from pydantic.alias_generators import to_camel

from tracer.records import ABANDONED, Kind, Run
from tracer.records.pages import Cursor, FoundPlace
from tracer.search import LONGEST_WORD, OPEN, Found, Hit, Query, SearchIndex, term
from tracer.storage.postgres.lists import list_of_runs, page_query
from tracer.storage.postgres.pool import SyncConnection
from tracer.storage.postgres.rows import columns, select
from tracer.storage.postgres.search_source import (
    ID_FIELD,
    MOST_CHARACTERS,
    SEARCHED,
    message_texts,
)
from tracer.storage.postgres.session import standing_of_sync
from tracer.storage.postgres.tables import ALWAYS, RUN_NOT_DELETED, START, TABLES
from tracer.store import RunFilter

# --- The runs of a page.

MOST_FOUND = 10_000
"""How many runs, latest first, are sorted or counted."""
_MOST_ROUNDS = 10
_FEWEST_HITS, _MOST_HITS = 100, 500

_FOUND = f"""
SELECT root_plan_id, coalesce(head_id, root_plan_id),
    head_id IS NOT NULL OR whole_status IS NOT NULL
FROM run WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND {RUN_NOT_DELETED}"""

_MEMBERS = f"""
SELECT coalesce(head_id, root_plan_id), root_plan_id, {START} FROM run
WHERE project_id = %(project_id)s AND (head_id = ANY(%(heads)s) OR root_plan_id = ANY(%(heads)s))
    AND {RUN_NOT_DELETED}"""


class FoundRuns:
    """The runs that the index finds, as row-level security and the filters of the list allow."""

    def __init__(
        self, connection: SyncConnection, index: SearchIndex, project_id: int, wanted: RunFilter
    ) -> None:
        """Parse the query of a filter.

        Raises:
            BadRequest: The query has no word.
        """
        self._connection = connection
        self._index = index
        self._project_id = project_id
        self._wanted = wanted
        self.query = Query.parse(wanted.q or "")

    def page(
        self, limit: int, cursor: str | None, *, is_spread: bool
    ) -> tuple[list[tuple[Run, UUID]], str | None, datetime | None]:
        """Return a page, latest start first.

        Returns:
            The listed runs, each with the run that contains the words; the next cursor; and the
            start of the last examined run if the search ended early.
        """
        found: list[tuple[Run, Hit]] = []
        after = None if cursor is None else Hit(*_parts(Cursor.decode(cursor)))
        number = min(_MOST_HITS, max(_FEWEST_HITS, 2 * limit))
        for _ in range(_MOST_ROUNDS):
            hits = self._hits(number, after)
            listed = self._listed(hits, is_spread=is_spread)
            found += [(listed[hit.run_id], hit) for hit in hits if hit.run_id in listed]
            if len(found) > limit:
                last = found[limit - 1][1]
                return _items(found[:limit]), Cursor(last.start, last.run_id).encode(), None
            if len(hits) < number:
                return _items(found), None, None
            after = hits[-1]
        assert after is not None
        return _items(found), Cursor(after.start, after.run_id).encode(), after.start

    def heads(self) -> tuple[list[UUID], datetime | None]:
        """Return the runs that a list may show, and back to when they were searched; None: all."""
        hits = self._hits(MOST_FOUND, None)
        runs = [hit.run_id for hit in hits]
        back_to = hits[-1].start if len(hits) == MOST_FOUND else None
        if self._wanted.all_parts:
            return runs, back_to
        return sorted({head for _, head, _ in self._rows(_FOUND, runs=runs)}), back_to

    def _hits(self, number: int, after: Hit | None) -> list[Hit]:
        wanted = self._wanted
        filters = {
            name: [term(name, value)]
            for name, value in (
                ("agent", wanted.agent),
                ("tool", wanted.tool),
                ("session", wanted.session),
                ("subject", wanted.subject),
                ("tag", wanted.tag),
                ("service", wanted.service),
                ("version", wanted.service_version),
                ("environment", wanted.environment),
            )
            if value is not None
        }
        if wanted.status is not None and wanted.status != ABANDONED:
            filters["status"] = [term("status", wanted.status), OPEN]
        return self._index.hits(
            self.query,
            self._project_id,
            number,
            after=after,
            filters=filters,
            since=wanted.since,
            until=wanted.until,
        )

    def _listed(self, hits: Sequence[Hit], *, is_spread: bool) -> dict[UUID, Run]:
        """Return the runs that the list shows for those hits that it shows."""
        rows = self._rows(_FOUND, runs=[hit.run_id for hit in hits])
        if self._wanted.all_parts:
            heads = {run_id: run_id for run_id, _, _ in rows}
        else:
            heads = {run_id: head for run_id, head, _ in rows}
            if wholes := {head for _, head, has_parts in rows if has_parts}:
                latest = self._latest(sorted(wholes))
                for run_id, head, has_parts in rows:
                    if has_parts and latest.get(head, run_id) != run_id:
                        del heads[run_id]
        if not heads:
            return {}
        listing = list_of_runs(
            replace(self._wanted, q=None),
            self._project_id,
            None,
            is_spread=is_spread,
            among=sorted({*heads.values()}),
        )
        query = page_query(columns(Run), listing, is_spread=is_spread)
        found = select(self._connection, Run, query, {**listing.values, "limit": len(heads)})
        runs = {run.root_plan_id: run for run in found}
        return {run_id: runs[head] for run_id, head in heads.items() if head in runs}

    def _latest(self, heads: list[UUID]) -> dict[UUID, UUID]:
        """Return for each piece of work its run that started last and contains the words."""
        rows = self._rows(_MEMBERS, heads=heads)
        matching = self._index.matching(self.query, self._project_id, [row[1] for row in rows])
        return {
            head: run_id
            for head, run_id, _ in sorted(rows, key=lambda row: (row[2], row[1]))
            if run_id in matching
        }

    def _rows(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        parameters = {"project_id": self._project_id, **values}
        return self._connection.execute(query, parameters).fetchall()


def _parts(cursor: Cursor) -> tuple[datetime, UUID]:
    return cursor.moment, cursor.record_id


def _items(found: Sequence[tuple[Run, Hit]]) -> list[tuple[Run, UUID]]:
    return [(run, hit.run_id) for run, hit in found]


# --- Where runs contain the words of a query, for the snippets of a page and for one run.

PAGE_SECONDS = 0.05
"""How long the server looks for snippets for one page."""
MOST_BYTES = 16 * 2**20
"""How many bytes of texts it reads for a page, and for a search within a run."""
_RUNS_AT_ONCE = 10
_RECORDS_OF_RUN = 6
PLACES_OF_RUN = 2
MOST_PLACES = 1_000
"""The most records that a search within a run returns."""

_OF_STEP = """(SELECT step.agent_name FROM agent_execution_record AS step
    WHERE step.project_id = record.project_id AND step.root_plan_id = record.root_plan_id
        AND step.step_id = record.step_id)"""

_DESCRIPTION = {
    Kind.PLAN: "agent_name, NULL::text, NULL::integer",
    Kind.STEP: "agent_name, NULL::text, NULL::integer",
    Kind.THINK_ACT: f"{_OF_STEP}, coalesce(model, requested_model), position",
    Kind.TOOL_CALL: f"{_OF_STEP}, name, NULL::integer",
}


def _cut(field: str) -> str:
    return f"left({field}, {MOST_CHARACTERS})"


def _records(kind: Kind, fields: Sequence[str], is_filtered: bool) -> str:
    condition = " OR ".join(
        f"{field} ILIKE ANY(%(patterns)s) OR octet_length({field}) <> length({field})"
        for field in fields
    )
    return f"""SELECT root_plan_id, '{kind}', {ID_FIELD[kind]}, {_DESCRIPTION[kind]},
        ARRAY[{", ".join(f"{_cut(field)}" if field != "messages" else field for field in fields)}],
        {START}
    FROM {TABLES[kind]} AS record
    WHERE project_id = %(project_id)s AND root_plan_id = {{run}} AND {ALWAYS}
        AND ({condition if is_filtered else "true"})"""


def _fields(kind: Kind, with_messages: bool) -> list[str]:
    return [each for each in SEARCHED[kind] if with_messages or each != "messages"]


def _page_query(is_filtered: bool, is_spread: bool) -> str:
    """Return the query for some records of the runs `runs` that may contain the words.

    Args:
        is_filtered: Whether the database can compare the words.
        is_spread: Whether Citus distributes the tables. Then there must be one run.
    """
    run = "ANY(%(runs)s::uuid[])" if is_spread else "wanted.run"
    of_kinds = " UNION ALL ".join(
        f"({_records(kind, _fields(kind, False), is_filtered).format(run=run)}"
        f" LIMIT {_RECORDS_OF_RUN})"
        for kind in SEARCHED
    )
    if is_spread:
        return of_kinds
    return f"""SELECT record.* FROM unnest(%(runs)s::uuid[]) AS wanted (run)
        CROSS JOIN LATERAL ({of_kinds}) AS record"""


def _run_query(is_filtered: bool) -> str:
    of_kinds = " UNION ALL ".join(
        _records(kind, _fields(kind, True), is_filtered).format(run="ANY(%(runs)s::uuid[])")
        for kind in SEARCHED
    )
    return (
        f"SELECT * FROM ({of_kinds}) AS record (run, kind, id, agent, name, number, texts, at)"
        " ORDER BY at, id"
    )


def _parameters(project_id: int, runs: Sequence[UUID], query: Query) -> tuple[bool, dict[str, Any]]:
    pieces = [max(term.pieces, key=len) for term in query.terms]
    # An expression with letters of other scripts does not match what folding made equal.
    is_filtered = all(piece.isascii() for piece in pieces)
    patterns = [f"%{piece[:LONGEST_WORD]}%" for piece in pieces]
    return is_filtered, {"project_id": project_id, "runs": list(runs), "patterns": patterns}


def read_places(
    connection: SyncConnection, project_id: int, runs: Sequence[UUID], query: Query
) -> dict[UUID, list[FoundPlace]]:
    """Return the best places of runs on a page, for as many as can be read in `PAGE_SECONDS`.

    It must be the last to use the connection's transaction.
    """
    end = time.monotonic() + PAGE_SECONDS
    found: dict[UUID, list[FoundPlace]] = {}
    size = 0
    is_spread = standing_of_sync(connection).is_spread
    runs_at_once = 1 if is_spread else _RUNS_AT_ONCE
    for begin in range(0, len(runs), runs_at_once):
        rest = end - time.monotonic()
        if rest <= 0 or size > MOST_BYTES:
            break
        is_filtered, values = _parameters(project_id, runs[begin : begin + runs_at_once], query)
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL statement_timeout = {max(1, round(rest * 1000))}")
                rows = connection.execute(_page_query(is_filtered, is_spread), values).fetchall()
        except QueryCanceled:
            break
        size += sum(len(text or "") for row in rows for text in row[6])
        places: dict[UUID, list[tuple[int, FoundPlace]]] = defaultdict(list)
        for row in rows:
            if time.monotonic() > end:
                break
            if place := _place(row, query, with_messages=False):
                places[row[0]].append(place)
        for run_id, of_run in places.items():
            of_run.sort(key=lambda each: -each[0])
            # An answer is often also the result of a step.
            best = {str(place.snippet): place for _, place in reversed(of_run)}
            found[run_id] = [*reversed(best.values())][:PLACES_OF_RUN]
    return found


def read_places_in_run(
    connection: SyncConnection, project_id: int, runs: Sequence[UUID], query: Query
) -> tuple[list[FoundPlace], bool]:
    """Return the records of some runs that contain words of a query, in the order of their start.

    Returns:
        The places, and whether there may be more.
    """
    is_filtered, values = _parameters(project_id, runs, query)
    places: list[FoundPlace] = []
    size = 0
    for row in connection.execute(_run_query(is_filtered), values).fetchall():
        size += sum(len(text or "") for text in row[6])
        if len(places) == MOST_PLACES or size > MOST_BYTES:
            return places, True
        if place := _place(row, query, with_messages=True):
            places.append(place[1])
    return places, False


def _place(
    row: tuple[Any, ...], query: Query, *, with_messages: bool
) -> tuple[int, FoundPlace] | None:
    """Return the place in a record with the most terms of a query, and their number."""
    run_id, kind, record_id, agent, name, position, texts, _ = row
    best: tuple[int, str, Found] | None = None
    for field, stored in zip(_fields(Kind(kind), with_messages), texts, strict=True):
        if not stored:
            continue
        for text in message_texts(stored) if field == "messages" else (stored,):
            found = query.find(text)
            if found is None:
                continue
            # A phrase counts more than a word, and a name is the least that a person looks for.
            numbers = {number for _, _, number in found.matches}
            terms = 2 * sum(len(query.terms[number].pieces) for number in numbers)
            terms -= field in ("agent_name", "name")
            if best is None or terms > best[0]:
                best = terms, field, found
    if best is None:
        return None
    terms, field, found = best
    return terms, FoundPlace(
        root_plan_id=run_id,
        kind=Kind(kind),
        id=record_id,
        agent_name=agent,
        name=name,
        position=position,
        field=to_camel(field),
        snippet=found.snippet(),
    )
