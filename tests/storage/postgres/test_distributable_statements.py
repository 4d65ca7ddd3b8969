"""Citus can execute the statements of the projection, of reprojection and of the linker.

Read from the text alone, because most test runs have no coordinator. `test_citus.py` executes them
on one. Forms that Citus rejects are also searched for in the views, and by `tests/statements.py` in
each statement that a test of the storage sends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.citus_forms import rejected_forms
from tests.statements import fingerprint
from tracer.records.record_classes import RECORDS
from tracer.storage.postgres import METADATA, linker, projection, projection_rows, spans, writer
from tracer.storage.postgres.migrate import VIEWS_FILE

DISTRIBUTED = [name for name, table in METADATA.tables.items() if "root_plan_id" in table.columns]

OF_ALL_SHARDS = {
    "projection_rows.FIND_RUNS_OF_SESSIONS": "finds the runs of sessions, wherever they are",
    "projection_rows.FIND_DUE": "finds runs wherever they are",
    "projection_rows.DUE": "reads the named runs of all projects",
    "linker.PROJECTS": "finds runs wherever they are",
    "linker.UNLINKED": "finds runs wherever they are",
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
    "projection._FIND_RUN projection.FIND_PENDING projection._PENDING_OF_RUNS"
    " projection._PENDING_RUNS spans._BLOCKS spans._BLOCKS_BY_KEY spans._BLOCK_SIZES"
    " spans._DELETE_BLOCKS spans._GIVE_UP"
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


IN_RUN = "root_plan_id = %(run)s"


@pytest.mark.parametrize(
    ("rejected", "reason", "accepted"),
    [
        (
            "SELECT 1 FROM run CROSS JOIN LATERAL (SELECT run.status) AS one",
            "LATERAL",
            "SELECT 1 FROM run CROSS JOIN LATERAL (SELECT name FROM act_tool_info) AS one",
        ),
        (
            "SELECT EXISTS (SELECT FROM run WHERE is_failed)",
            "SELECT 1",
            "SELECT EXISTS (SELECT 1 FROM run WHERE is_failed)",
        ),
        (
            "SELECT 1 FROM run JOIN recorder_lease USING (recorder_id)",
            "CTE",
            "WITH lease AS (SELECT * FROM recorder_lease)"
            " SELECT 1 FROM run JOIN lease USING (recorder_id)",
        ),
        (
            "SELECT 1 FROM run WHERE EXISTS (SELECT 1 FROM recorder_lease AS lease)",
            "CTE",
            "SELECT 1 FROM run WHERE recorder_id IN (SELECT recorder_id FROM recorder_lease)",
        ),
        (
            "SELECT 1 FROM run WHERE is_failed FOR UPDATE",
            "several shards",
            f"SELECT 1 FROM run WHERE {IN_RUN} FOR UPDATE",
        ),
        (
            f"UPDATE run SET deleted_at = coalesce(%(now)s, now()) WHERE {IN_RUN}",
            "read the moment first",
            f"UPDATE run SET deleted_at = now() WHERE {IN_RUN}",
        ),
        (
            "INSERT INTO run (root_plan_id) VALUES ($1) ON CONFLICT (root_plan_id)"
            " DO UPDATE SET deleted_at = CASE WHEN is_failed THEN statement_timestamp() END",
            "read the moment first",
            "INSERT INTO run (root_plan_id) VALUES ($1) ON CONFLICT (root_plan_id)"
            " DO UPDATE SET deleted_at = $2",
        ),
        (
            "INSERT INTO run_group SELECT * FROM unnest($1::uuid[])",
            "COPY",
            "INSERT INTO run_group SELECT * FROM unnest($1::uuid[]) ON CONFLICT DO NOTHING",
        ),
        (
            "SELECT status, source FROM run GROUP BY GROUPING SETS (status, source)",
            "GROUPING SETS",
            "SELECT status, source FROM run GROUP BY status, source",
        ),
        (
            "SELECT 1 FROM unnest($1::uuid[]) AS id LEFT JOIN run ON root_plan_id = id",
            "outer join",
            "SELECT 1 FROM unnest($1::uuid[]) AS id JOIN run ON root_plan_id = id",
        ),
        (
            "SELECT 1 FROM run WHERE EXISTS"
            " (SELECT 1 FROM run AS other WHERE other.head_id = run.root_plan_id)",
            "other shards",
            "SELECT 1 FROM run WHERE EXISTS"
            " (SELECT 1 FROM run AS other WHERE other.root_plan_id = run.root_plan_id)",
        ),
        (
            "WITH RECURSIVE below AS (SELECT plan_id FROM plan_execution_record UNION"
            " SELECT 1 FROM below JOIN plan_execution_record USING (plan_id)) TABLE below",
            "recursive",
            f"WITH RECURSIVE below AS (SELECT plan_id FROM plan_execution_record WHERE {IN_RUN}"
            " UNION SELECT 1 FROM below JOIN plan_execution_record USING (plan_id)) TABLE below",
        ),
    ],
)
def test_form_that_citus_rejects_is_found_with_its_reason(
    rejected: str, reason: str, accepted: str
) -> None:
    [found] = rejected_forms(rejected)
    assert reason in found
    assert rejected_forms(accepted) == []


def test_bodies_of_views_and_functions_have_no_form_that_citus_rejects() -> None:
    statements = VIEWS_FILE.read_text("utf-8").split(";\n")
    found = {each[:60]: rejected_forms(each) for each in statements}
    assert len(found) > 10
    assert {name: reasons for name, reasons in found.items() if reasons} == {}


def test_fingerprint_depends_on_the_statement_not_on_its_layout_and_numbers() -> None:
    assert fingerprint("SELECT  1\n FROM run") == fingerprint("SELECT 2 FROM run")
    assert fingerprint("SELECT 1 FROM run") != fingerprint("SELECT 1 FROM run_link")
