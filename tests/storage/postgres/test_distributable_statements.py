"""Citus can execute the statements of the projection, of reprojection and of the linker.

Read from the text alone, because most test runs have no coordinator. `test_citus.py` executes them
on one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tracer.records.record_classes import RECORDS
from tracer.storage.postgres import METADATA, linker, projection, projection_rows, spans, writer

DISTRIBUTED = [name for name, table in METADATA.tables.items() if "root_plan_id" in table.columns]

OF_ALL_SHARDS = {
    "projection_rows.FIND_RUNS_OF_SESSIONS": "finds the runs of sessions, wherever they are",
    "projection_rows.FIND_DUE": "finds runs wherever they are",
    "projection_rows.DUE": "reads the named runs of all projects",
    "linker.PROJECTS": "finds runs wherever they are",
    "linker.UNLINKED": "finds runs wherever they are",
    "linker.READ_RUNS": "looks up the recorder of each run in a subquery of its shard",
    "linker.READ_PARTS": "finds the parts of heads, wherever they are",
    "linker.FIND_FOLLOWERS": "finds runs wherever they are",
    "linker.ARE_WAITING": "finds runs wherever they are",
    "linker.FIND_CLAIMING": "finds runs wherever they are",
    "linker.FIND_CLAIMANTS": "finds the runs of a session",
    "linker.FIND_AGENTS": "finds the runs of a session",
    "linker.READ_CALLS": "finds calls wherever they are",
    "linker.READ_KEYED_CALLS": "finds the calls of a session",
    "projection._NEXT": "lists the runs of a project",
    "projection._PENDING_REPROJECTIONS": "lists the pending runs of a project",
    "projection._UNLINKED": "lists the runs of a project that are not linked",
}
"""Statements that read all shards, and why. They lock and write nothing."""

OTHERS = frozenset(
    "projection.FIND_PENDING projection._PENDING_OF_RUNS projection._PENDING_RUNS spans._BLOCKS"
    " spans._BLOCKS_BY_KEY spans._BLOCK_SIZES spans._DELETE_BLOCKS spans._GIVE_UP"
    " spans._HAS_NO_PENDING spans._IS_MERGEABLE spans.LOCK_RUN spans._NEXT_RUN_TO_MERGE"
    " spans._BLOCK_WEIGHTS spans._CALLS spans._SESSIONS spans._SPAN_RECORDS spans._STEPS_OF_PLAN"
    " spans._SETTLED writer._CLOSED_RUNS writer._OPEN_PARTS writer._REQUEST_CANCEL"
    " writer._RUN".split()
)
"""Statements of the same modules that read one run, or that wait for projections."""


def _statements() -> Iterator[tuple[str, str]]:
    for module in (writer, spans, projection_rows, projection, linker):
        prefix = module.__name__.rpartition(".")[2]
        for name, value in vars(module).items():
            if name.isupper() and f"{prefix}.{name}" not in OTHERS:
                parts = value.values() if isinstance(value, dict) else (value,)
                parts = value if isinstance(value, tuple) else parts
                for part in parts:
                    if isinstance(part, str) and re.search(r"\b(SELECT|UPDATE|DELETE)\s", part):
                        yield f"{prefix}.{name}", part
    for kind in RECORDS:
        yield f"replacing {kind}", projection_rows.replacing(kind)
        for part in projection_rows.removing(kind):
            yield f"removing {kind}", part


STATEMENTS = list(_statements())

_TABLE = rf"\b(?:FROM|JOIN|UPDATE|USING)\s+({'|'.join(DISTRIBUTED)})\b"
_CLOCK = r"(statement|clock|transaction)_timestamp|\bnow\(\)"
_NAMES_RUNS = r"root_plan_id = ANY\((?:\$\d+|%\(runs\)s)"


def test_distribution_check_finds_the_sql_statements_of_the_package() -> None:
    assert len(STATEMENTS) > 40
    assert set(OF_ALL_SHARDS) <= {name for name, _ in STATEMENTS}


@pytest.mark.parametrize(("name", "statement"), STATEMENTS)
def test_every_table_in_a_statement_is_filtered_by_run(name: str, statement: str) -> None:
    if name in OF_ALL_SHARDS:
        assert not re.search(r"INSERT|UPDATE|DELETE", statement)
        return
    tables = re.findall(_TABLE, statement)
    joined = re.findall(r"USING \(project_id, root_plan_id\)", statement)
    assert len(re.findall(_NAMES_RUNS, statement)) + len(joined) >= len(tables), tables


@pytest.mark.parametrize(("name", "statement"), STATEMENTS)
def test_update_assignments_use_no_time_zone_and_a_clock_only_by_itself(
    name: str, statement: str
) -> None:
    assigned = statement.partition(" SET ")[2].partition("\nFROM ")[0]
    # The coordinator reads the clock of `column = statement_timestamp()`, and of nothing else.
    without = re.sub(r"= statement_timestamp\(\)", "", assigned)
    assert not re.search(_CLOCK, without if "DO UPDATE SET" not in statement else assigned)
    intervals = re.findall(r"interval '", assigned)
    in_utc = re.findall(r"AT TIME ZONE 'UTC' \+ [^']*interval '", assigned)
    assert len(intervals) == len(in_utc)
