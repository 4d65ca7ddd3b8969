"""Records have one way in and one way out: the promise that `tracer/store.py` describes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from tests.house.project_files import ROOT
from tracer.records.record_classes import RECORDS
from tracer.storage import postgres
from tracer.storage.postgres.tables import TABLES

SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for part in ("api", "tracer")
    for path in sorted((ROOT / part).rglob("*.py"))
}

_NAMES = "|".join(TABLES[kind] for kind in RECORDS)
# Both statements get the table's name from a variable.
_INSERTS = re.compile(rf"INSERT INTO (?:\{{|(?:{_NAMES})\b)")


def _files_with(pattern: str | re.Pattern[str]) -> set[str]:
    return {path for path, text in SOURCES.items() if re.search(pattern, text)}


def test_one_way_in_rows_of_records_are_inserted_by_one_module_for_each_of_the_two_inputs() -> None:
    assert _files_with(_INSERTS) == {
        "tracer/storage/postgres/event_rows.py",
        "tracer/storage/postgres/projection_rows.py",
    }


def test_one_way_in_events_and_spans_reach_the_storage_through_trace_writer() -> None:
    assert _files_with(r"\bEventRows\(") == {"tracer/storage/postgres/writer.py"}
    assert _files_with(r"\bPostgresSpans\(") == {"tracer/storage/postgres/writer.py"}


def test_one_way_out_the_storage_builds_readers_and_routes_get_them_from_one_function() -> None:
    assert _files_with(r"\bPostgresReader\(") == {"tracer/storage/postgres/project_stores.py"}
    assert _files_with(r"\bup_to_date\(") == {"api/freshness.py", "api/dependencies.py"}


def test_statements_that_raise_the_revision_of_runs_set_the_time_of_their_change() -> None:
    """Tail and the search index read runs by that time."""
    raising = [
        part
        for module in iter_modules(postgres.__path__, f"{postgres.__name__}.")
        for statement in _texts(vars(import_module(module.name)))
        for part in re.split(r"\b(?=UPDATE|INSERT INTO|DELETE FROM)\b(?! SET)", statement)
        if re.match(r"(UPDATE|INSERT INTO) run\b.*(?<!\.)\brevision = ", part, re.DOTALL)
    ]
    assert len(raising) > 10
    assert [part for part in raising if not re.search(r"(?<!\.)\bchanged_at = ", part)] == []


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
