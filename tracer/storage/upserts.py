"""The SQL that merges versions of records into the tables, generated from `tracer.merge.RULES`.

One statement takes any number of rows of any kinds, each kind's as a JSON array. It locks the runs,
does what `tracer.merge.merged` does, touches only rows that change, and keeps the runs' totals as
differences of old and new rows, so that repeats do not count twice.

All take the project's id as $1 and the server's time as $2, for a raw cursor: psycopg does not
remember how it read the placeholders of statements as long as these.
"""

from __future__ import annotations

from functools import cache

from sqlalchemy import Column
from sqlalchemy.engine import URL

from tracer.merge import RULES
from tracer.records import FROM_ROOT_PLAN, Kind
from tracer.storage.castable_json import FIT_COLUMNS
from tracer.storage.tables import METADATA, TABLES

# Less than any value that an event can hold; what has no such value gets a flag beside it.
_NOTHING = {
    "INTEGER": "-1",
    "BIGINT": "-1",
    "NUMERIC": "-1",
    "TIMESTAMP WITH TIME ZONE": "'-infinity'",
    "record_status": "'unknown'",
}
_FLAGGED = {"TEXT": "''", "BOOLEAN": "false"}


_DIALECT = URL.create("postgresql+psycopg").get_dialect()()


def column_type(table: str, column: str) -> str:
    """Return the SQL type of a table's column."""
    found: Column[object] = METADATA.tables[table].columns[column]
    return found.type.compile(_DIALECT)


def fit_values() -> dict[str, str]:
    """Return the value of each flag of a tool call. JSON rows omit a flag that is false."""
    return {flag: f"coalesce(given.{flag}, false)" for flag in FIT_COLUMNS}


class _Merge:
    """The parts of one kind's statement. `kept` is the stored row, `excluded` the given one."""

    def __init__(self, kind: Kind) -> None:
        self.rules = RULES[kind]
        self.table = TABLES[kind]
        self.types = {
            field: column_type(self.table, field)
            for field in (self.rules.id_field, *self.rules.fields)
        }

    def given(self) -> str:
        """Return the columns of the JSON rows."""
        columns = {"root_plan_id": "UUID"} | self.types
        columns |= dict.fromkeys(self.flags(self.rules.fields), "BOOLEAN")
        return ", ".join(f"{name} {type_}" for name, type_ in columns.items())

    def values(self) -> dict[str, str]:
        """Return each field's value in a row that is new."""
        return {
            field: f"coalesce(given.{field}, '{{}}')"
            if field in self.rules.union
            else f"given.{field}"
            for field in self.rules.fields
        }

    def singles(self) -> dict[str, str]:
        """Return what each field that merges by itself becomes when two versions meet."""
        new = {}
        for function, fields in (("greatest", self.rules.greatest), ("least", self.rules.least)):
            for field in fields:
                new[field] = f"{function}(kept.{field}, excluded.{field}{self._byte_order(field)})"
        for field in self.rules.union:
            new[field] = (
                f"CASE WHEN excluded.{field} <@ kept.{field} THEN kept.{field} ELSE"
                f' ARRAY(SELECT DISTINCT item COLLATE "C" FROM unnest(kept.{field} ||'
                f" excluded.{field}) AS item ORDER BY 1) END"
            )
        return new

    def tuples(self) -> list[str]:
        """Return an assignment for each group of fields that merges as one tuple."""
        return [
            f"""({", ".join(columns)}) = (
                SELECT {", ".join(_either("it.is_greater", column) for column in columns)}
                FROM (SELECT {self.is_greater(group)} AS is_greater OFFSET 0) AS it)"""
            for group in self.rules.groups
            for columns in [(*group, *self.flags(group))]
        ]

    def flags(self, fields: tuple[str, ...]) -> list[str]:
        """Return the flags that describe one of `fields`; only tool calls have any."""
        if self.table != TABLES[Kind.TOOL_CALL]:
            return []
        return [flag for flag, text in FIT_COLUMNS.items() if text in fields]

    def is_greater(self, group: tuple[str, ...]) -> str:
        return f"{self._tuple('excluded', group)} > {self._tuple('kept', group)}"

    def _tuple(self, row: str, fields: tuple[str, ...]) -> str:
        values = []
        for field in fields:
            type_ = self.types[field]
            if type_ in _FLAGGED:
                values.append(f"{row}.{field} IS NOT NULL")
            nothing = _FLAGGED.get(type_) or _NOTHING[type_]
            values.append(f"coalesce({row}.{field}, {nothing}){self._byte_order(field)}")
        return f"({', '.join(values)})"

    def _byte_order(self, field: str) -> str:
        return ' COLLATE "C"' if self.types[field] == "TEXT" else ""

    def changes(self) -> str:
        """Return whether the given version changes the stored one."""
        new = self.singles()
        before = ", ".join(f"kept.{field}" for field in new)
        after = ", ".join(new.values())
        return " OR ".join(
            [f"({before}) IS DISTINCT FROM ({after})", *map(self.is_greater, self.rules.groups)]
        )


def _either(condition: str, field: str) -> str:
    return f"CASE WHEN {condition} THEN excluded.{field} ELSE kept.{field} END"


def _lock_runs() -> str:
    merge = _Merge(Kind.RUN)
    new = ", ".join(f"{field} = {value}" for field, value in merge.singles().items())
    values = merge.values()
    return f"""
    INSERT INTO run AS kept (project_id, root_plan_id, status, recorded_at, revision, source,
        input_tokens, output_tokens, cost_usd, tool_calls, failures, {", ".join(values)})
    SELECT $1, root_plan_id, 'unknown', $2, 1, 'events', 0, 0, 0, 0, 0,
        {", ".join(values.values())}
    FROM json_to_recordset($3) AS given ({merge.given()})
    ORDER BY root_plan_id
    ON CONFLICT (project_id, root_plan_id) DO UPDATE SET revision = kept.revision + 1, {new}
    WHERE kept.deleted_at IS NULL AND kept.source = 'events'"""


LOCK_RUNS = _lock_runs()
"""Makes or locks the runs of the rows $3 one by one, in the order of their ids; grows `revision`.

Every writer locks in this order, so that overlapping writes cannot wait for each other in a
circle.
"""


@cache
def merging(kinds: tuple[Kind, ...], *, is_spread: bool) -> str:
    """Return the statement that merges rows of `kinds` into runs that are there.

    It locks the runs $4 as `LOCK_RUNS` does, lets their revision grow by $3, and merges the rows
    from $5 on, a parameter a kind. It returns the runs that take events: not those that were
    deleted or came as spans.

    Args:
        kinds: Of which there are rows.
        is_spread: The tables are spread by Citus, and the runs are locked. What one part of a
            statement hands to others goes to all workers there, so each part looks runs up itself.
    """
    locked = f"({_OPEN}) AS locked" if is_spread else "locked"
    parts = [] if is_spread else [f"locked AS ({_OPEN} ORDER BY root_plan_id FOR NO KEY UPDATE)"]
    parts += [_changed(kind, f"${place}", locked) for place, kind in enumerate(kinds, 5)]
    new = {"revision": "locked.revision"}
    joined = ""
    if Kind.PLAN in kinds:
        joined += f""" LEFT JOIN {_name(Kind.PLAN)} AS root
        ON root.root_plan_id = locked.root_plan_id AND root.plan_id = locked.root_plan_id"""
        for column in FROM_ROOT_PLAN:
            new[column] = f"CASE WHEN root.plan_id IS NULL THEN run.{column} ELSE root.{column} END"
    for kind, columns in _COUNTED.items():
        if kind in kinds:
            sums = ", ".join(f"sum({column}) AS {column}" for column in columns)
            joined += f""" LEFT JOIN
        (SELECT root_plan_id, {sums} FROM {_name(kind)} GROUP BY root_plan_id)
        AS more_{_name(kind)} ON more_{_name(kind)}.root_plan_id = locked.root_plan_id"""
            for column in columns:
                before = new.get(column, f"run.{column}")
                new[column] = f"{before} + coalesce(more_{_name(kind)}.{column}, 0)"
    return f"""
    {"WITH " if parts else ""}{", ".join(parts)}
    UPDATE run SET {", ".join(f"{column} = {value}" for column, value in new.items())}
    FROM {locked}{joined}
    WHERE run.project_id = $1 AND run.root_plan_id = locked.root_plan_id
        AND run.root_plan_id = ANY($4::uuid[])
    RETURNING run.root_plan_id"""


_OPEN = """SELECT root_plan_id, revision + $3 AS revision FROM run
        WHERE project_id = $1 AND root_plan_id = ANY($4::uuid[])
            AND deleted_at IS NULL AND source = 'events'"""


def _name(kind: Kind) -> str:
    return f"changed_{TABLES[kind]}"


def _changed(kind: Kind, rows: str, locked: str) -> str:
    merge = _Merge(kind)
    key = merge.rules.id_field
    values = merge.values()
    singles = merge.singles()
    if kind is Kind.TOOL_CALL:
        values |= fit_values()
    for flag in merge.flags(merge.rules.greatest):
        text = FIT_COLUMNS[flag]
        is_greater = f'kept.{text} IS NULL OR excluded.{text} > kept.{text} COLLATE "C"'
        singles[flag] = _either(is_greater, flag)
    singles["revision"] = "excluded.revision"
    assignments = [f"{field} = {value}" for field, value in singles.items()] + merge.tuples()
    return f"""{_name(kind)} AS (
        INSERT INTO {merge.table} AS kept
            (project_id, root_plan_id, {key}, recorded_at, revision, {", ".join(values)})
        SELECT $1, locked.root_plan_id, given.{key}, $2, locked.revision,
            {", ".join(values.values())}
        FROM json_to_recordset({rows}) AS given ({merge.given()})
        JOIN {locked} ON locked.root_plan_id = given.root_plan_id
        ORDER BY given.root_plan_id, given.{key}
        ON CONFLICT (project_id, root_plan_id, {key}) DO UPDATE
        SET {", ".join(assignments)}
        WHERE {merge.changes()}
        {_RETURNING.get(kind, "")}
    )"""


_FAILED = "(new.status = 'failed')::int - coalesce(old.status = 'failed', false)::int AS failures"
_NUMBERS = ("input_tokens", "output_tokens", "cost_usd")

_RETURNING = {
    Kind.PLAN: "RETURNING new.root_plan_id, new.plan_id, "
    + ", ".join(f"new.{c}" for c in FROM_ROOT_PLAN),
    Kind.THINK_ACT: "RETURNING new.root_plan_id, "
    + ", ".join(f"coalesce(new.{c}, 0) - coalesce(old.{c}, 0) AS {c}" for c in _NUMBERS)
    + f", {_FAILED}",
    Kind.TOOL_CALL: (
        f"RETURNING new.root_plan_id, (old.tool_call_id IS NULL)::int AS tool_calls, {_FAILED}"
    ),
}
"""What the run has to know of each row that was changed."""

_COUNTED = {
    Kind.THINK_ACT: (*_NUMBERS, "failures"),
    Kind.TOOL_CALL: ("tool_calls", "failures"),
}
"""Which of its numbers the run sums up."""
