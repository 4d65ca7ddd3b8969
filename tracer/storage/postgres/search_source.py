"""What the search index and its snippets are made of, read from Postgres."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson

from tracer.records import Kind
from tracer.search import (
    CUT,
    OPEN,
    WHOLE,
    ChangedRun,
    RunDocument,
    SearchDirectory,
    SearchIndex,
    plain_text,
    term,
)
from tracer.storage.postgres.pool import Pool, SyncConnection, pooled_connection, store_errors
from tracer.storage.postgres.projection_rows import ProjectorSession
from tracer.storage.postgres.tables import ALWAYS, IS_OPEN, RUN_NOT_DELETED, START, TABLES

MOST_CHARACTERS = 65_536
"""How many characters of a text are indexed."""
MOST_RUN_BYTES = 16 * 2**20
"""How many bytes of a run's texts are indexed."""
SEARCHED = {
    Kind.PLAN: ("title", "agent_name", "user_request", "summary", "error_type", "error_message"),
    Kind.STEP: ("agent_name", "request", "result", "error_type", "error_message"),
    Kind.THINK_ACT: ("thought", "messages", "error_type", "error_message"),
    Kind.TOOL_CALL: ("name", "arguments", "result", "error_type", "error_message"),
}
"""The fields that are searched."""

_IDENTITY = """
SELECT current_database() || created_at::text FROM project ORDER BY project_id LIMIT 1"""

_PROJECTS = "SELECT project_id, erased_at, statement_timestamp() FROM project ORDER BY project_id"

_CHANGED = f"""
SELECT root_plan_id, revision, changed_at, {IS_OPEN}, deleted_at IS NULL AND is_agent_work, {START}
FROM run WHERE project_id = $1"""

_FOLLOWING = f"""{_CHANGED} AND (changed_at, root_plan_id) > ($2, $3)
ORDER BY changed_at, root_plan_id LIMIT $4"""

_OLDER = f"""{_CHANGED} AND {RUN_NOT_DELETED} AND ({START}, root_plan_id) < ($2, $3)
ORDER BY {START} DESC, root_plan_id DESC LIMIT $4"""

_COUNT = f"SELECT count(*) FROM run WHERE project_id = $1 AND {RUN_NOT_DELETED} AND is_agent_work"

_OF_RUNS = f"project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND {ALWAYS}"

_SIZES = f"""
SELECT root_plan_id, sum(size)::bigint FROM ({
    " UNION ALL ".join(
        f'''SELECT root_plan_id, coalesce(sum({
            " + ".join(f"coalesce(octet_length({field}), 0)::bigint" for field in fields)
        }), 0) AS size FROM {TABLES[kind]} WHERE {_OF_RUNS} GROUP BY root_plan_id'''
        for kind, fields in SEARCHED.items()
    )
}) AS record GROUP BY root_plan_id"""

FILTERED = ("session", "subject", "tag", "service", "service_version", "environment")
"""The attributes of `RunFilter` that a run's own row answers."""

_RUNS = f"""
SELECT root_plan_id, revision, {START}, {IS_OPEN}, status::text,
    head_id IS NOT NULL OR whole_status IS NOT NULL, ARRAY[session_id], ARRAY[subject], tags,
    ARRAY[service_name], ARRAY[service_version], ARRAY[deployment_environment]
FROM run WHERE project_id = $1 AND root_plan_id = ANY($2::uuid[]) AND {RUN_NOT_DELETED}
    AND is_agent_work"""

ID_FIELD = {
    Kind.PLAN: "plan_id",
    Kind.STEP: "step_id",
    Kind.THINK_ACT: "think_act_id",
    Kind.TOOL_CALL: "tool_call_id",
}

# The messages of a later round repeat those of the earlier ones, so they are not cut in SQL. One
# character more shows that a text is cut.
_TEXTS = {
    kind: f"""SELECT root_plan_id, {
        ", ".join(
            field if field == "messages" else f"left({field}, {MOST_CHARACTERS + 1})"
            for field in fields
        )
    } FROM {TABLES[kind]} WHERE {_OF_RUNS} ORDER BY root_plan_id, revision, {ID_FIELD[kind]}"""
    for kind, fields in SEARCHED.items()
}


def _directory_of(parent: Path, identity: str) -> SearchDirectory:
    return SearchDirectory(parent / blake2b(identity.encode(), digest_size=8).hexdigest())


async def search_index(pool: Pool, directory: Path | None) -> SearchIndex:
    """Return the index of a database that answers searches.

    Raises:
        StoreUnavailable: The database does not answer.
    """
    if directory is None:
        return SearchIndex(None)
    with store_errors():
        async with pooled_connection(pool) as connection:
            [(identity,)] = await (await connection.execute(_IDENTITY.encode())).fetchall()
    return SearchIndex(_directory_of(directory, identity))


class SearchSource:
    """Reads the runs of all projects for the index, over a projector's connection."""

    def __init__(self, connection: SyncConnection) -> None:
        """Set the connection, which must be in autocommit mode and not pooled."""
        self._session = ProjectorSession(connection)

    def directory(self, parent: Path) -> SearchDirectory:
        """Return the directory of this database's index. Several databases may share `parent`."""
        [(identity,)] = self._session.ask(_IDENTITY)
        return _directory_of(parent, identity)

    def projects(self) -> list[tuple[int, datetime | None, datetime]]:
        """Return the projects: their ids, the times of their last erasure, and the present time."""
        return [(*row,) for row in self._session.ask(_PROJECTS)]

    def following(
        self, project_id: int, after: datetime, after_id: UUID, limit: int
    ) -> list[ChangedRun]:
        """Return runs in the order of their last changes, deleted ones, too."""
        return self._changed(project_id, _FOLLOWING, after, after_id, limit)

    def older(
        self, project_id: int, before: datetime, before_id: UUID, limit: int
    ) -> list[ChangedRun]:
        """Return runs that started earlier, latest first."""
        return self._changed(project_id, _OLDER, before, before_id, limit)

    def count(self, project_id: int) -> int:
        """Return how many runs of a project have a document."""
        with self._session.in_project(project_id):
            [(number,)] = self._session.ask(_COUNT, project_id)
        return int(number)

    def sizes(self, project_id: int, runs: Sequence[UUID]) -> dict[UUID, int]:
        """Return the bytes of the texts of runs."""
        with self._session.in_project(project_id):
            return dict(self._session.ask(_SIZES, project_id, list(runs)))

    def documents(self, project_id: int, runs: Sequence[UUID]) -> Iterator[RunDocument]:
        """Yield the documents of some runs. Deleted runs and runs without agent work have none."""
        with self._session.in_project(project_id, "ISOLATION LEVEL REPEATABLE READ READ ONLY"):
            ask = self._session.ask
            found = ask(_RUNS, project_id, list(runs))
            records = {
                kind: ask(statement, project_id, [row[0] for row in found])
                for kind, statement in _TEXTS.items()
            }
        texts = {row[0]: _Texts() for row in found}
        for kind, rows in records.items():
            for run_id, *values in rows:
                for field, value in zip(SEARCHED[kind], values, strict=True):
                    texts[run_id].add(field, value or "")
        for run_id, revision, start, is_open, status, has_parts, *filtered in found:
            terms = texts[run_id].terms
            for name, values in zip(FILTERED, filtered, strict=True):
                terms |= {term(name, value) for value in values or () if value}
            terms.add(OPEN if is_open else term("status", status))
            if has_parts:
                terms.add(WHOLE)
            yield RunDocument(project_id, run_id, revision, start, terms, texts[run_id].texts)

    def _changed(self, project_id: int, statement: str, *values: Any) -> list[ChangedRun]:
        with self._session.in_project(project_id):
            return [ChangedRun(*row) for row in self._session.ask(statement, project_id, *values)]


class _Texts:
    """The texts of a run, each once, and the terms of its agents and tools."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.terms: set[str] = set()
        self._digests: set[bytes] = set()
        self._size = 0

    def add(self, field: str, stored: str) -> None:
        if stored and field in _NAMES:
            self.terms.add(term(_NAMES[field], stored))
        for text in message_texts(stored) if field == "messages" else (stored,):
            digest = blake2b(text.encode(errors="replace"), digest_size=12).digest()
            if digest in self._digests:
                continue
            self._digests.add(digest)
            plain = plain_text(text)
            if len(text) > MOST_CHARACTERS or self._size > MOST_RUN_BYTES:
                self.terms.add(CUT)
            if self._size <= MOST_RUN_BYTES:
                self.texts.append(plain[:MOST_CHARACTERS])
                self._size += len(plain[:MOST_CHARACTERS])


_NAMES = {"agent_name": "agent", "name": "tool"}


def message_texts(stored: str) -> list[str]:
    """Return the texts in the messages of a model call, without roles, types and ids."""
    try:
        messages = orjson.loads(stored)
    except ValueError:
        return [stored]
    return list(_leaves(messages))


_NOT_SEARCHED = {"role", "type", "id", "call_id", "callId", "tool_call_id", "toolCallId", "status"}


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if not value.startswith("data:"):
            yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in _NOT_SEARCHED:
                yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)
