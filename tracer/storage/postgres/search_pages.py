"""Read pages of a search: runs that the index finds, and where they contain the words."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.errors import QueryCanceled
from pydantic.alias_generators import to_camel

from tracer.records import ABANDONED, Kind, Run
from tracer.records.pages import Cursor, FoundPlace
from tracer.search import OPEN, Hit, Query, SearchIndex, term
from tracer.storage.postgres.lists import list_of_runs, page_query
from tracer.storage.postgres.pool import SyncConnection
from tracer.storage.postgres.rows import columns, select
from tracer.storage.postgres.search_source import (
    FILTERED,
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
_MORE_HITS, _MOST_HITS = 20, 500
"""How many more hits are read than a page has items, because some are not listed; and the most."""

_FOUND = f"""
SELECT root_plan_id, coalesce(head_id, root_plan_id),
    head_id IS NOT NULL OR whole_status IS NOT NULL
FROM run WHERE project_id = %(project_id)s AND root_plan_id = ANY(%(runs)s) AND {RUN_NOT_DELETED}"""

_MEMBERS = f"""
SELECT coalesce(head_id, root_plan_id), root_plan_id FROM run
WHERE project_id = %(project_id)s AND (head_id = ANY(%(runs)s) OR root_plan_id = ANY(%(runs)s))
    AND {RUN_NOT_DELETED}
ORDER BY {START}, root_plan_id"""


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
        self, limit: int, cursor: str | None
    ) -> tuple[list[tuple[Run, UUID]], str | None, datetime | None]:
        """Return a page, latest start first.

        Returns:
            The listed runs, each with the run that contains the words; the next cursor; and the
            start of the last examined run if the search ended early.
        """
        found: list[tuple[Run, Hit]] = []
        last = None
        if cursor is not None:
            decoded = Cursor.decode(cursor)
            last = Hit(decoded.moment, decoded.record_id)
        number = min(_MOST_HITS, limit + _MORE_HITS)
        for _ in range(_MOST_ROUNDS):
            hits = self._hits(number, last)
            listed = self._listed(hits)
            found += [(listed[hit.run_id], hit) for hit in hits if hit.run_id in listed]
            last = hits[-1] if len(hits) == number else None
            if last is None or len(found) > limit:
                break
        back_to = last and last.start
        if len(found) > limit:
            last, back_to = found[limit - 1][1], None
        items = [(run, hit.run_id) for run, hit in found[:limit]]
        return items, last and Cursor(*last).encode(), back_to

    def heads(self) -> tuple[list[UUID], datetime | None]:
        """Return the runs that a list may show, and back to when they were searched; None: all."""
        hits = self._hits(MOST_FOUND, None)
        runs = [hit.run_id for hit in hits]
        back_to = hits[-1].start if len(hits) == MOST_FOUND else None
        if self._wanted.all_parts:
            return runs, back_to
        return sorted({head for _, head, _ in self._rows(_FOUND, runs)}), back_to

    def _hits(self, number: int, after: Hit | None) -> list[Hit]:
        wanted = self._wanted
        filters = {
            name: [term(name, value)]
            for name in ("agent", "tool", *FILTERED)
            if (value := getattr(wanted, name)) is not None
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

    def _listed(self, hits: Sequence[Hit]) -> dict[UUID, Run]:
        """Return the runs that the list shows for those hits that it shows."""
        rows = self._rows(_FOUND, [hit.run_id for hit in hits]) if hits else []
        heads = {run_id: run_id if self._wanted.all_parts else head for run_id, head, _ in rows}
        wholes = {heads[run_id] for run_id, _, has_parts in rows if has_parts}
        if wholes and not self._wanted.all_parts:
            members = self._rows(_MEMBERS, sorted(wholes))
            ids = [run_id for _, run_id in members]
            matching = self._index.matching(self.query, self._project_id, ids)
            latest = {head: run_id for head, run_id in members if run_id in matching}
            heads = {run: head for run, head in heads.items() if latest.get(head, run) == run}
        if not heads:
            return {}
        is_spread = standing_of_sync(self._connection).is_spread
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

    def _rows(self, query: str, runs: Sequence[UUID]) -> list[tuple[Any, ...]]:
        values = {"project_id": self._project_id, "runs": runs}
        return self._connection.execute(query, values).fetchall()


# --- Where runs contain the words of a query, for the snippets of a page and for one run.

PAGE_SECONDS = 0.05
"""How long the server looks for snippets for one page."""
MOST_BYTES = 16 * 2**20
"""How many bytes of texts it reads for a page, and for a search within a run."""
_RUNS_AT_ONCE = 10
_RECORDS_OF_RUN = 6
MOST_PLACES = 1_000
"""The most records that a search within a run returns."""

_OF_STEP = """(SELECT step.agent_name FROM agent_execution_record AS step
    WHERE step.project_id = record.project_id AND step.root_plan_id = record.root_plan_id
        AND step.root_plan_id = {run} AND step.step_id = record.step_id)"""
"""Names the run once more: Citus then asks only its shard."""

_DESCRIPTION = {
    Kind.PLAN: "agent_name, NULL::text, NULL::integer",
    Kind.STEP: "agent_name, NULL::text, NULL::integer",
    Kind.THINK_ACT: f"{_OF_STEP}, coalesce(model, requested_model), position",
    Kind.TOOL_CALL: f"{_OF_STEP}, name, NULL::integer",
}


def _records(kind: Kind, run: str, *, of_page: bool) -> str:
    """Return the query for records of a run that may contain the words.

    A page shows two records of each run, so it reads a few, preferably those in which the database
    finds a word. It does not compare words with accents, or escaped ones.
    """
    fields = [field for field in SEARCHED[kind] if field != "messages" or not of_page]
    texts = [each if each == "messages" else f"left({each}, {MOST_CHARACTERS})" for each in fields]
    matches = " OR ".join(f"{field} ILIKE ANY(%(patterns)s)" for field in fields)
    unlike = " OR ".join(f"octet_length({field}) <> length({field})" for field in fields)
    some = f"ORDER BY ({matches}) IS TRUE DESC LIMIT {_RECORDS_OF_RUN}"
    return f"""(SELECT root_plan_id, '{kind}', {ID_FIELD[kind]},
        {_DESCRIPTION[kind].format(run=run)},
        ARRAY[{", ".join(f"'{field}'" for field in fields)}], ARRAY[{", ".join(texts)}], {START}
    FROM {TABLES[kind]} AS record
    WHERE project_id = %(project_id)s AND root_plan_id = {run} AND {ALWAYS}
        {some if of_page else f"AND (%(is_other)s OR {matches} OR {unlike})"})"""


def _query(run: str, *, of_page: bool) -> str:
    return " UNION ALL ".join(_records(kind, run, of_page=of_page) for kind in SEARCHED)


_OF_RUNS = "ANY(%(runs)s::uuid[])"
_PAGE = f"""SELECT record.* FROM unnest(%(runs)s::uuid[]) AS wanted (run)
    CROSS JOIN LATERAL ({_query("wanted.run", of_page=True)}) AS record"""
_PAGE_OF_ONE = _query(_OF_RUNS, of_page=True)
_IN_RUN = f"""SELECT * FROM ({_query(_OF_RUNS, of_page=False)})
    AS record (run, kind, id, agent, name, number, fields, texts, at) ORDER BY at, id"""


def _parameters(project_id: int, runs: Sequence[UUID], query: Query) -> dict[str, Any]:
    words = [max(term.words, key=len) for term in query.terms]
    # An expression with letters of other scripts does not match what folding made equal.
    is_other = not all(word.isascii() for word in words)
    patterns = [f"%{word}%" for word in words]
    return {"project_id": project_id, "runs": runs, "patterns": patterns, "is_other": is_other}


def read_places(
    connection: SyncConnection, project_id: int, runs: Sequence[UUID], query: Query
) -> dict[UUID, list[FoundPlace]]:
    """Return the best two places of runs on a page, of as many as can be read in `PAGE_SECONDS`.

    It must be the last to use the connection's transaction.
    """
    end = time.monotonic() + PAGE_SECONDS
    found: dict[UUID, dict[str, tuple[int, FoundPlace]]] = {}
    size = 0
    # On Citus no statement joins the runs of several shards with their records.
    is_spread = standing_of_sync(connection).is_spread
    statement, at_once = (_PAGE_OF_ONE, 1) if is_spread else (_PAGE, _RUNS_AT_ONCE)
    for begin in range(0, len(runs), at_once):
        rest = end - time.monotonic()
        if rest <= 0 or size > MOST_BYTES:
            break
        some = runs[begin : begin + at_once]
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL statement_timeout = {max(1, round(rest * 1000))}")
                values = _parameters(project_id, some, query)
                rows = connection.execute(statement, values).fetchall()
        except QueryCanceled:
            break
        for row in rows:
            size += _size(row)
            # An answer is often also the result of a step.
            of_run = found.setdefault(row[0], {})
            is_enough = sum(weight == query.weight for weight, _ in of_run.values()) > 1
            if not is_enough and time.monotonic() < end and (place := _place(row, query)):
                of_run.setdefault(str(place[1].snippet), place)
    return {
        run_id: [place for _, place in sorted(of_run.values(), key=lambda each: -each[0])][:2]
        for run_id, of_run in found.items()
    }


def read_places_in_run(
    connection: SyncConnection, project_id: int, runs: Sequence[UUID], query: Query
) -> tuple[list[FoundPlace], bool]:
    """Return the records of some runs that contain words of a query, in the order of their start.

    Returns:
        The places, and whether there may be more.
    """
    places: list[FoundPlace] = []
    size = 0
    for row in connection.execute(_IN_RUN, _parameters(project_id, runs, query)).fetchall():
        size += _size(row)
        if len(places) == MOST_PLACES or size > MOST_BYTES:
            return places, True
        if place := _place(row, query):
            places.append(place[1])
    return places, False


def _size(row: tuple[Any, ...]) -> int:
    return sum(len(text or "") for text in row[7])


def _place(row: tuple[Any, ...], query: Query) -> tuple[int, FoundPlace] | None:
    """Return the place in a record with the most terms of a query, and their weight."""
    run_id, kind, record_id, agent, name, position, fields, texts, _ = row
    found = []
    for field, stored in zip(fields, texts, strict=True):
        for text in message_texts(stored or "[]") if field == "messages" else (stored or "",):
            if place := query.find(text):
                # A name is the least that a person looks for.
                weight = place.weight - (field in ("agent_name", "name"))
                found.append((weight, field, place))
    if not found:
        return None
    weight, field, place = max(found, key=lambda each: each[0])
    return weight, FoundPlace(
        root_plan_id=run_id,
        kind=Kind(kind),
        id=record_id,
        agent_name=agent,
        name=name,
        position=position,
        field=to_camel(field),
        snippet=place.snippet(),
    )
