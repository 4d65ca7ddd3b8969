"""Read the rows of a tree, and its changes since an earlier revision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar
from uuid import UUID

from psycopg.rows import args_row
from sqlalchemy import Enum, Uuid

from tracer.errors import RecordNotFound
from tracer.lineage import PAYLOAD_FIELDS, Payloads, Revision, Row, TreeRows
from tracer.lineage.diff import BEGINNING, digest_of, is_digest
from tracer.lineage.tree import NODES, ROWS, LaterPart, TreeTotals, attach_parts, unknown_plan
from tracer.records import Kind
from tracer.records.masks import MARK_CHARACTERS, NOT_KEPT
from tracer.records.merge import RULES
from tracer.records.prices import known_total
from tracer.records.record_classes import RECORDS
from tracer.storage.postgres.pool import SyncConnection
from tracer.storage.postgres.rows import KIND_WORDS
from tracer.storage.postgres.run_tables import abandoned_at, shown_status
from tracer.storage.postgres.tables import ALWAYS, METADATA, NOT_DELETED, RUN_NOT_DELETED, TABLES
from tracer.store import RunChanges
from tracer.text import EXCERPT_BYTES, PREVIEW_BYTES, preview, without_data

# --- Read the rows of a tree from Postgres: five queries, one more for a sub-plan, and two more for
# the parts of a piece of work.
#
# Runs in a worker thread (`session.in_snapshot`).

_ERROR_TEXTS = ("error_message", "error_stack")

SomeRow = TypeVar("SomeRow", bound=Row)

MAX_PART_RECORDS = 10_000
"""The most records of later parts in the tree of a piece of work. Further parts are folded."""

# The first characters contain at least the first bytes; `preview` then cuts between characters.
# The CASE avoids counting the characters of short strings.
_BEGINNING = "CASE WHEN octet_length({0}) <= {most} THEN {0} ELSE left({0}, {most}) END"
_TEXT = {
    Payloads.PREVIEW: _BEGINNING,
    Payloads.EXCERPT: _BEGINNING,
    Payloads.FULL: "{}",
    Payloads.DIGEST: "encode(sha256(convert_to({}, 'UTF8')), 'hex')",
    # `_compare` computes the digests of values in JSON.
    Payloads.COMPARED: "CASE WHEN left(ltrim({0}, E' \\t\\n\\r'), 1) IN ('{{', '[', '\"') THEN {0}"
    f" ELSE encode(sha256(convert_to({{0}}, 'UTF8')), 'hex') || left({{0}}, {BEGINNING}) END",
}
# The size before the project's policy shortened the text: its mark contains it. Comparing arrays
# would cost more than reading the size, and most values of `masked` are empty.
_SIZE = (
    "CASE WHEN {0} IS NULL THEN NULL WHEN coalesce(cardinality(masked), 0) = 0"
    " THEN octet_length({0})"
    f" ELSE coalesce(substring(right({{0}}, {MARK_CHARACTERS})"
    f" from '{NOT_KEPT.replace('{', '{{').replace('}', '}}')}')::bigint,"
    " octet_length({0})) END"
)
_CUT = {
    Payloads.NONE: "{} <> ''",
    Payloads.PREVIEW: "octet_length({0}) > {most}",
    Payloads.EXCERPT: "octet_length({0}) > {most}",
    Payloads.FULL: "false",
    Payloads.DIGEST: "{} <> ''",
    Payloads.COMPARED: "{} <> ''",
}


def _row(kind: Kind, payloads: Payloads, runs: str) -> dict[str, str]:
    """Return the SQL of each field of a row of `runs`, in the order of the fields."""
    columns = METADATA.tables[TABLES[kind]].columns
    texts = payload_expressions(kind, payloads)
    message, stack = (texts.get(field, "NULL") for field in _ERROR_TEXTS)
    made = texts | {
        "abandoned_at": abandoned_at(TABLES[kind], runs),
        "status": shown_status(TABLES[kind], runs),
        "cost_usd": "cost_usd::float8",
        "duration_ms": _DURATION,
        "masked": "nullif(masked, '{}')",  # earlier programs stored empty lists
        "forged_arguments": "coalesce(forged_arguments, '{}')",
        "error": f"CASE WHEN num_nonnulls(error_type, {', '.join(_ERROR_TEXTS)}) > 0 THEN"
        f" json_build_object('type', error_type, 'message', {message}, 'stack', {stack}) END",
    }
    row = {}
    for field in ROWS[kind].__struct_fields__:
        if field in made:
            row[field] = made[field]
        elif field in PAYLOAD_FIELDS[kind]:
            row[field] = "NULL"
        elif isinstance(columns[field].type, (Uuid, Enum)):
            row[field] = f"{field}::text"
        else:
            row[field] = field
    return row


# In whole microseconds: `extract` returns numerics of any length, which are much slower.
_DURATION = "round(date_part('epoch', finished_at - started_at) * 1e6) / 1e3"


def payload_expressions(kind: Kind, payloads: Payloads) -> dict[str, str]:
    """Return the SQL of each long string, its size, and whether it is cut.

    The SQL cuts slightly too late; `_cut` shortens the strings to the exact length.
    """
    row: dict[str, str] = {}
    if payloads is not Payloads.NONE:
        for field in (*_ERROR_TEXTS, *PAYLOAD_FIELDS[kind]):
            row[field] = _TEXT[payloads].format(field, most=_most_bytes(kind, field, payloads))
    if payloads is Payloads.COMPARED:
        row |= {"error_message": "error_message", "error_stack": "NULL"}
    for field in PAYLOAD_FIELDS[kind]:
        row[f"{field}_bytes"] = _SIZE.format(field)
        cut = _CUT[payloads].format(field, most=_most_bytes(kind, field, payloads))
        row[f"{field}_truncated"] = f"coalesce({cut}, false)"
    return row


def _most_bytes(kind: Kind, field: str, payloads: Payloads) -> int:
    """Return how long the beginning of a text is, in bytes, if the tree contains beginnings."""
    is_outcome = kind is Kind.TOOL_CALL and field in ("result", "state_changes")
    return EXCERPT_BYTES if is_outcome and payloads is Payloads.EXCERPT else PREVIEW_BYTES


_IN_RUN = f"project_id = %(project_id)s AND root_plan_id = %(run)s AND {ALWAYS}"

_FOUND = """
SELECT plan.root_plan_id, plan.tool_call_id, run.revision, run.recorded_at, run.unread_spans,
    run.whole_status IS NOT NULL, run.recorder_id::text"""

_FIND = f"""{_FOUND}
FROM plan_execution_record AS plan
JOIN run ON run.project_id = plan.project_id AND run.root_plan_id = plan.root_plan_id
WHERE plan.plan_id = %(plan)s AND plan.project_id = %(project_id)s AND plan.{NOT_DELETED}
ORDER BY plan.status = 'unknown', plan.root_plan_id LIMIT 1"""

_FIND_ROOT = f"""{_FOUND}
FROM run LEFT JOIN plan_execution_record AS plan ON plan.project_id = run.project_id
    AND plan.root_plan_id = run.root_plan_id AND plan.plan_id = %(plan)s
WHERE run.root_plan_id = %(plan)s AND run.project_id = %(project_id)s AND run.{RUN_NOT_DELETED}
    AND plan.status IS DISTINCT FROM 'unknown'"""
"""Find a root plan on the shard of its run. The plan is null if no projector has read its spans."""

_PARTS = f"""
SELECT part.root_plan_id::text, coalesce(part.started_at, part.recorded_at),
    part.continues_run_id::text, link.tool_call_id::text, link.inferred_from, part.is_inside,
    part.recorder_id::text, part.unread_spans, part.input_tokens, part.output_tokens,
    part.cost_usd::float8, part.unpriced_calls, part.tool_calls
FROM run AS part LEFT JOIN run_link AS link ON link.project_id = part.project_id
    AND link.root_plan_id = part.root_plan_id AND link.is_link
    AND link.continued_run_id = part.continues_run_id
WHERE part.project_id = %(project_id)s AND part.head_id = %(run)s AND part.{RUN_NOT_DELETED}
ORDER BY link.number"""
"""Read the runs that continue the run, with the calls that they continue: a row for each call."""

_COUNT_PARTS = " UNION ALL ".join(
    f"SELECT root_plan_id::text, count(*) FROM {TABLES[kind]} WHERE project_id = %(project_id)s"
    f" AND root_plan_id = ANY(%(runs)s) AND {ALWAYS} GROUP BY root_plan_id"
    for kind in RECORDS
)
"""Count the records of the runs `runs`: up to a row for each run and kind."""

_PLANS_BELOW = """
WITH RECURSIVE below AS (
    SELECT plan_id FROM plan_execution_record
    WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND plan_id = %(plan)s
    UNION
    SELECT plan.plan_id
    FROM below JOIN plan_execution_record AS plan ON plan.parent_plan_id = below.plan_id
    WHERE plan.project_id = %(project_id)s AND plan.root_plan_id = %(run)s
)
SELECT plan_id FROM below"""
"""The ids of a sub-plan and of the plans below it. UNION drops duplicates, so the query ends even
if plans form a circle."""

_STEPS_BELOW = (
    f"SELECT step_id FROM agent_execution_record WHERE {_IN_RUN} AND plan_id = ANY(%(plans)s)"
)

_BELOW = {
    Kind.PLAN: "plan_id = ANY(%(plans)s)",
    Kind.STEP: "plan_id = ANY(%(plans)s)",
    Kind.THINK_ACT: f"step_id IN ({_STEPS_BELOW})",
    Kind.TOOL_CALL: f"(step_id IN ({_STEPS_BELOW}) OR tool_call_id = %(opener)s)",
}
"""The SQL conditions for the rows of the plans `plans`, and for the call that opened the
sub-plan."""


def rows_query(kind: Kind, payloads: Payloads, condition: str, runs: str = "= %(run)s") -> str:
    """Return the query for the rows of one kind in some runs, for `read_rows`.

    Its columns are the fields of the kind's row, in their order.

    Args:
        kind: The kind of record.
        payloads: How much of the long strings to read.
        condition: An SQL condition that selects rows of the runs.
        runs: What their ids are compared with.
    """
    row = ", ".join(f'{sql} AS "{name}"' for name, sql in _row(kind, payloads, runs).items())
    return (
        f"SELECT {row} FROM {TABLES[kind]} WHERE project_id = %(project_id)s"
        f" AND root_plan_id {runs} AND {ALWAYS} AND {condition}"
    )


_OF_RUN = {
    payloads: {kind: rows_query(kind, payloads, "true") for kind in _BELOW} for payloads in Payloads
}

_NOT_FOLDED = "(root_plan_id <> ALL(%(folded)s)"
_OF_PARTS = {
    payloads: {
        kind: rows_query(
            kind,
            payloads,
            f"{_NOT_FOLDED}{' OR plan_id = root_plan_id' if kind is Kind.PLAN else ''})",
            "= ANY(%(runs)s)",
        )
        for kind in _BELOW
    }
    for payloads in Payloads
}

_OF_SUB_PLAN = {
    payloads: {kind: rows_query(kind, payloads, condition) for kind, condition in _BELOW.items()}
    for payloads in Payloads
}


def read_tree(
    connection: SyncConnection,
    project_id: int,
    plan_id: UUID,
    payloads: Payloads,
    *,
    all_parts: bool = True,
) -> TreeRows:
    """Return the rows of a plan and of everything below it.

    Args:
        connection: In a transaction in which every query sees the same state, and in a pipeline.
        project_id: The project whose plan it is.
        plan_id: The plan. If several runs contain it, the first run in which it is no placeholder
            is read.
        payloads: How much of the long strings to read.
        all_parts: Whether to read the runs that continue the run, too, if it is the first one of a
            piece of work.

    Raises:
        RecordNotFound: The plan does not exist.
    """
    parameters: dict[str, Any] = {"project_id": project_id, "plan": plan_id}
    row = connection.execute(_FIND_ROOT, parameters, prepare=True).fetchone()
    if row is None:
        row = connection.execute(_FIND, parameters, prepare=True).fetchone()
    if row is None:
        raise RecordNotFound("plan", plan_id)
    run_id, opener_id, number, recorded_at, unread, has_parts, recorder_id = row
    if run_id is None:
        revision = Revision(plan_id, number, recorded_at)
        return TreeRows([unknown_plan(plan_id)], revision=revision)
    parameters |= {"run": run_id, "opener": opener_id}
    parts: dict[str, LaterPart] = {}
    if run_id != plan_id:
        below = connection.execute(_PLANS_BELOW, parameters).fetchall()
        parameters["plans"] = [each for (each,) in below]
    queries = (_OF_RUN if run_id == plan_id else _OF_SUB_PLAN)[payloads]
    if has_parts and all_parts and run_id == plan_id:
        parts = _read_parts(connection, parameters)
        unread += sum(part.unread_spans for part in parts.values() if not part.is_folded)
        parameters["runs"] = [run_id, *map(UUID, parts)]
        parameters["folded"] = [UUID(each) for each, part in parts.items() if part.is_folded]
        queries = _OF_PARTS[payloads]
    rows = read_rows(connection, NODES, queries, parameters, payloads)
    tree = TreeRows(
        plans=rows[Kind.PLAN],
        steps=rows[Kind.STEP],
        think_acts=rows[Kind.THINK_ACT],
        tool_calls=rows[Kind.TOOL_CALL],
        revision=Revision(run_id, number, recorded_at),
        unread_spans=unread,
    )
    attach_parts(tree, parts.values(), recorder_id)
    if opener_id is not None:
        _take_opener_out(tree, str(opener_id))
    return tree


def _read_parts(connection: SyncConnection, parameters: dict[str, Any]) -> dict[str, LaterPart]:
    """Return the runs that continue a run, by id, the earliest first."""
    found = connection.execute(_PARTS, parameters).fetchall()
    parts: dict[str, LaterPart] = {}
    for *fields, unread, input_tokens, output_tokens, cost, unpriced, calls in found:
        known = known_total(cost, unpriced + unread)
        totals = TreeTotals(input_tokens, output_tokens, known, unpriced + unread, calls)
        parts[fields[0]] = LaterPart._make([*fields, unread, totals, False])
    counts = Counter[str]()
    runs = parameters | {"runs": [*map(UUID, parts)]}
    for run_id, count in connection.execute(_COUNT_PARTS, runs).fetchall():
        counts[run_id] += count
    total = 0
    for run_id, part in sorted(parts.items(), key=lambda item: (item[1].started_at, item[0])):
        total += counts[run_id]
        parts[run_id] = part._replace(is_folded=total > MAX_PART_RECORDS)
    return parts


def _take_opener_out(tree: TreeRows, opener_id: str) -> None:
    """Set `tree.opener` to the call that opened the plan.

    The call is removed from the tree's tool calls, unless it is also below the plan.
    """
    steps = {step.step_id for step in tree.steps}
    for index, call in enumerate(tree.tool_calls):
        if call.tool_call_id == opener_id:
            tree.opener = call
            if call.step_id not in steps:
                del tree.tool_calls[index]
            return


def read_rows(
    connection: SyncConnection,
    classes: Mapping[Kind, type[SomeRow]],
    queries: Mapping[Kind, str],
    parameters: dict[str, Any],
    payloads: Payloads,
) -> dict[Kind, list[Any]]:
    """Execute queries of `rows_query`, and return their rows sorted by position, then by id.

    Args:
        connection: In a pipeline: all queries are sent before the first answer is read.
        classes: The class of each kind's rows.
        queries: The query of each kind.
        parameters: Their parameters.
        payloads: How much of the long strings they read.
    """
    cursors = {}
    for kind, query in queries.items():
        cursors[kind] = connection.cursor(row_factory=args_row(classes[kind]), binary=True)
        cursors[kind].execute(query, parameters, prepare=True)
    rows_by_kind = {kind: cursor.fetchall() for kind, cursor in cursors.items()}
    for kind, rows in rows_by_kind.items():
        # Not in SQL: Postgres sorts by moving whole rows, which takes longer than the rest.
        rows.sort(key=attrgetter(RULES[kind].id_field))
        rows.sort(key=lambda row: _LAST if row.position is None else row.position)
        if payloads in (Payloads.PREVIEW, Payloads.EXCERPT):
            _cut(kind, rows, payloads)
        elif payloads is Payloads.COMPARED:
            _compare(kind, rows)
    return rows_by_kind


_LAST = 2**31
"""The sort key of rows without a position, which come last."""


def _cut(kind: Kind, rows: Sequence[Row], payloads: Payloads) -> None:
    """Cut strings to the exact length, and leave out the data of pictures and other files.

    SQL returns the strings slightly longer.
    """
    for field in PAYLOAD_FIELDS[kind]:
        is_cut = attrgetter(f"{field}_truncated")
        most = _most_bytes(kind, field, payloads)
        for row, text in zip(rows, map(attrgetter(field), rows), strict=True):
            if text and (is_cut(row) or ";base64," in text):
                shown = preview(without_data(text), most)
                setattr(row, field, shown)
                setattr(row, f"{field}_truncated", is_cut(row) or shown != text)
    for row in rows:
        if error := row.error:
            for name in ("message", "stack"):
                if text := error[name]:
                    error[name] = preview(text)


def _compare(kind: Kind, rows: Sequence[Row]) -> None:
    """Replace each payload by a digest of its JSON value, so that rows can be compared."""
    for field in PAYLOAD_FIELDS[kind]:
        for row in rows:
            text = getattr(row, field)
            if text and not is_digest(text):
                setattr(row, field, digest_of(text))


# --- The rule by which every store reports the changes of a run since an earlier revision.

Removed = tuple[Kind, UUID]
"""A record that a projection removed."""


def changes_between(
    after: int,
    revision: int,
    changed: Sequence[Row],
    removed: Sequence[Removed],
    limit: int,
) -> RunChanges:
    """Return the changes of a run since a revision.

    Args:
        after: The revision that the reader has.
        revision: The run's current revision.
        changed: The rows changed since then; at least `limit` + 1 if there are more than `limit`.
        removed: The records removed since then, including those that exist again.
        limit: The largest number of changes. If there are more, `is_reset` is set in the result.
    """
    if after > revision or len(changed) + len(removed) > limit:
        return RunChanges(revision, is_reset=True)
    # A removed record that exists again is among the changed ones.
    existing = {(row.kind, getattr(row, RULES[row.kind].id_field)) for row in changed}
    remaining = [(kind, id_) for kind, id_ in removed if (kind, str(id_)) not in existing]
    return RunChanges(revision, changed, remaining)


# --- Reads the changes and the revisions of runs from Postgres, for watchers.


_RUN = f"run.project_id = %(project_id)s AND run.{RUN_NOT_DELETED}"

_REVISION = f"SELECT revision, parts_revision FROM run WHERE {_RUN} AND root_plan_id = %(run)s"

_REVISIONS = f"SELECT root_plan_id, revision FROM run WHERE {_RUN} AND root_plan_id = ANY(%(runs)s)"

_STATE = "run.root_plan_id, run.revision, run.recorded_at"

_RUN_OF = {Kind.RUN: f"SELECT {_STATE} FROM run WHERE {_RUN} AND root_plan_id = %(id)s"} | {
    kind: f"""
    SELECT {_STATE}
    FROM {TABLES[kind]} AS part
    JOIN run ON run.project_id = part.project_id AND run.root_plan_id = part.root_plan_id
    WHERE part.{RULES[kind].id_field} = %(id)s AND part.project_id = %(project_id)s
        AND run.{RUN_NOT_DELETED}
    ORDER BY part.status = 'unknown', part.root_plan_id LIMIT 1"""
    for kind in RECORDS
}

_REMOVED = """
SELECT kind, record_id FROM removed_record
WHERE project_id = %(project_id)s AND root_plan_id = %(run)s AND revision > %(after)s
ORDER BY record_id LIMIT %(most)s"""


def read_run_changes(
    connection: SyncConnection, project_id: int, root_plan_id: UUID, after: int, limit: int
) -> RunChanges:
    """Return what changed in a run after a revision.

    Args:
        connection: In a transaction with one snapshot, and in a pipeline.
        project_id: The run's project.
        root_plan_id: The run.
        after: The revision.
        limit: The largest number of changes.
    """
    parameters = {"project_id": project_id, "run": root_plan_id, "after": after, "most": limit + 1}
    # All queries are sent before the first result is read, in one round trip.
    cursor = connection.execute(_REVISION, parameters)
    removed = connection.execute(_REMOVED, parameters)
    rows = read_rows(connection, ROWS, _CHANGED, parameters, Payloads.PREVIEW)
    row = cursor.fetchone()
    if row is None:
        raise RecordNotFound(KIND_WORDS[Kind.RUN], root_plan_id)
    if after < row[1]:  # another part of the work changed, whose revisions are its own
        return RunChanges(row[0], is_reset=True)
    changed = [row for kind in RECORDS for row in rows[kind]]
    gone = [(Kind(kind), record_id) for kind, record_id in removed.fetchall()]
    return changes_between(after, row[0], changed, gone, limit)


def read_run_revision(
    connection: SyncConnection, project_id: int, kind: Kind, record_id: UUID
) -> Revision:
    """Return the revision of the run that contains a record."""
    cursor = connection.execute(
        _RUN_OF[kind], {"project_id": project_id, "id": record_id}, prepare=True
    )
    row = cursor.fetchone()
    if row is None:
        raise RecordNotFound(KIND_WORDS[kind], record_id)
    return Revision(*row)


def read_run_revisions(
    connection: SyncConnection, project_id: int, root_plan_ids: list[UUID]
) -> dict[UUID, int]:
    """Return the revisions of runs."""
    parameters: dict[str, Any] = {"project_id": project_id, "runs": root_plan_ids}
    cursor = connection.execute(_REVISIONS, parameters)
    return dict(cursor.fetchall())


_RUN_OF[Kind.RUN] += " AND root_plan_id = %(id)s"

_CHANGED = {
    kind: rows_query(kind, Payloads.PREVIEW, "revision > %(after)s") + " LIMIT %(most)s"
    for kind in RECORDS
}
