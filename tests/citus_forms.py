"""The forms of SQL that Citus rejects, found in the text of a statement.

Citus 14 rejected each of them in a statement that one Postgres executes. The list is not complete:
`statements.py` knows which statements a cluster has executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tracer.storage.postgres import METADATA
from tracer.storage.postgres.citus import LOCAL_TABLES

DISTRIBUTED = [name for name, table in METADATA.tables.items() if "root_plan_id" in table.columns]

_RUNS = rf"(?:public\.)?(?:{'|'.join(DISTRIBUTED)})\b"
_READS_RUNS = re.compile(rf"\b(?:FROM|JOIN|USING) {_RUNS}")
_READS_LOCAL = re.compile(rf"\b(?:FROM|JOIN|USING) (?:{'|'.join(sorted(LOCAL_TABLES))})\b")
_CLOCK = r"\b(?:now|statement_timestamp|clock_timestamp|transaction_timestamp)\(\)"
_LATE_CLOCK = re.compile(
    rf"\bcoalesce\((?:[^()]|\([^()]*\))*{_CLOCK}|\bCASE (?:(?!\bEND\b).)*{_CLOCK}",
)
_OUTER_JOIN = re.compile(rf"\bFROM unnest… .*\bLEFT JOIN {_RUNS}")


def rejected_forms(statement: str) -> list[str]:
    """Return why Citus rejects a statement. The list is empty if it has no known form."""
    text = " ".join(re.sub(r"--[^\n]*", "", statement).split())
    return [*dict.fromkeys(_reasons(text))] if re.search(_RUNS, text) else []


def _reasons(text: str) -> Iterator[str]:
    if _LATE_CLOCK.search(text.partition(" SET ")[2]):
        yield "a clock in CASE or coalesce of an UPDATE: read the moment first"
    if re.match(rf"INSERT INTO {_RUNS}.*\bSELECT\b", text) and "ON CONFLICT" not in text:
        yield "INSERT … SELECT without ON CONFLICT becomes COPY, which row-level security forbids"
    if "WITH RECURSIVE" in text and not re.search(r"root_plan_id = (%|\$|\w+_of\.run\b)", text):
        yield "a recursive query that does not name its run"
    for word, part in _parts(text):
        reads_runs = _READS_RUNS.search(part)
        if word == "LATERAL" and re.match(r"SELECT (?!.*\bFROM\b)", part):
            yield "LATERAL over a SELECT without FROM: name the run's id as a constant"
        if word == "EXISTS" and re.match(rf"SELECT FROM {_RUNS}(?!.*root_plan_id)", part):
            yield "EXISTS (SELECT FROM …) over all shards: write SELECT 1"
        selects = part.split(" UNION ")
        if any(_READS_LOCAL.search(e) and _READS_RUNS.search(e) for e in selects) or (
            word == "EXISTS" and _READS_LOCAL.search(part)
        ):
            yield "a local table joins distributed ones only through a CTE"
        if reads_runs and re.search(r"GROUPING SETS|\bROLLUP\b|\bCUBE\b", part):
            yield "GROUPING SETS over all shards"
        is_locking = re.search(r"\bFOR (NO KEY )?(UPDATE|SHARE)\b", part)
        if reads_runs and is_locking and not re.search(r"\broot_plan_id (=|IN)", part):
            yield "a lock without a condition on root_plan_id: it would be on several shards"
        if _OUTER_JOIN.search(part):
            yield "an outer join from values to a table with row-level security"
        if re.search(r"\b(\w+)\.head_id = (?!\1\.)\w+\.root_plan_id", part):
            yield "a correlated subquery on runs of other shards"


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the text in each pair of parentheses with the word before it, then the whole text.

    Parentheses within a part are replaced by "…". A list of values is named like an array.
    """
    innermost = re.compile(r"(\w*) ?\(([^()]*)\)")
    while found := innermost.search(text):
        yield found[1].upper(), found[2].strip()
        word = f"{found[1]} unnest" if found[2].startswith("VALUES") else found[1]
        text = f"{text[: found.start()]}{word}…{text[found.end() :]}"
    yield "", text
