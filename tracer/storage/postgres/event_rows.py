"""Turn events into rows: the SQL is generated from `tracer.records.merge.RULES` at import."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
    Set,
)
from datetime import datetime
from itertools import combinations, zip_longest
from typing import Any
from uuid import UUID

from psycopg.errors import ForeignKeyViolation

from tracer.records import Kind, Status
from tracer.records.events import Event, ThoughtRecorded
from tracer.records.merge import (
    LINKS,
    RULES,
    Fields,
    Key,
    Reduced,
    json_batches,
    merge_records,
    partial_records,
)
from tracer.records.prices import OwnPrices, TokenUsage, cost_of
from tracer.records.record_classes import FROM_ROOT_PLAN, RECORDS
from tracer.storage.postgres.citus import is_spread, runs_per_transaction
from tracer.storage.postgres.pool import PoolConnection, retry_on_conflict, store_errors
from tracer.storage.postgres.projects import ModelPrices
from tracer.storage.postgres.run_tables import SETTLE_OPEN
from tracer.storage.postgres.session import ProjectPool, Statement, executed, fetched, in_project
from tracer.storage.postgres.tables import TABLES, column_type, unpriced

# --- Compute the costs of event runs from the project's prices: when events arrive, and on request.

RUNS_AT_ONCE = 200
"""How many runs are locked together."""

_FIRST_ID = UUID(int=0)


_FIELDS = tuple(
    "requested_model model provider finished_at input_tokens output_tokens"
    " cache_read_tokens cache_written_tokens reasoning_tokens".split()
)


_NAMES = """
SELECT root_plan_id, think_act_id, requested_model, provider FROM think_act_record
WHERE project_id = %s AND root_plan_id = ANY(%s) AND think_act_id = ANY(%s)"""

_NEXT = """
SELECT root_plan_id FROM run
WHERE project_id = %s AND root_plan_id > %s AND deleted_at IS NULL AND source = 'events'
ORDER BY root_plan_id LIMIT %s"""

_LOCK = """
SELECT root_plan_id FROM run
WHERE project_id = %s AND root_plan_id = ANY(%s) AND deleted_at IS NULL AND source = 'events'
ORDER BY root_plan_id FOR NO KEY UPDATE"""

_ROUNDS = f"""
SELECT root_plan_id, think_act_id, cost_usd, {", ".join(_FIELDS)} FROM think_act_record
WHERE project_id = %s AND root_plan_id = ANY(%s) AND finished_at IS NOT NULL"""

_RAISE = """
UPDATE run SET revision = revision + 1, changed_at = statement_timestamp()
WHERE project_id = %s AND root_plan_id = ANY(%s)"""

_CHANGE = """
UPDATE think_act_record AS stored SET cost_usd = new.cost_usd, revision = run.revision
FROM unnest(%s::uuid[], %s::uuid[], %s::numeric[]) AS new (root_plan_id, think_act_id, cost_usd),
    run
WHERE stored.project_id = %s AND stored.root_plan_id = ANY(%s)
    AND stored.root_plan_id = new.root_plan_id AND stored.think_act_id = new.think_act_id
    AND run.project_id = stored.project_id AND run.root_plan_id = stored.root_plan_id"""

_SUM = f"""
UPDATE run SET cost_usd = total.cost_usd, unpriced_calls = total.unpriced_calls
FROM (
    SELECT root_plan_id, coalesce(sum(cost_usd), 0) AS cost_usd,
        sum({unpriced("round")}) AS unpriced_calls
    FROM think_act_record AS round WHERE project_id = %s AND root_plan_id = ANY(%s)
    GROUP BY root_plan_id
) AS total
WHERE run.project_id = %s AND run.root_plan_id = ANY(%s)
    AND run.root_plan_id = total.root_plan_id"""


async def price_rounds(project: ProjectPool, rounds: dict[Key, Fields], prices: OwnPrices) -> None:
    """Set the costs of rounds that a price of the project applies to.

    If a round lacks its provider or its requested model, one query reads these names from the
    stored rounds.

    Args:
        project: The project.
        rounds: Merged fields of think-acts, by run and id.
        prices: The project's prices.
    """
    if not prices:
        return
    ended = {key: fields for key, fields in rounds.items() if fields.get("finished_at") is not None}
    lacking = [
        key
        for key, fields in ended.items()
        if fields.get("provider") is None or fields.get("requested_model") is None
    ]
    stored: Mapping[Key, Fields] = {}
    if lacking:
        runs, ids = map(list, zip(*lacking, strict=True))
        async with in_project(project) as connection:
            cursor = await connection.execute(_NAMES, [project.project_id, runs, ids])
            stored = {
                (run_id, think_act_id): {"requested_model": requested, "provider": provider}
                async for run_id, think_act_id, requested, provider in cursor
            }
    for key, fields in ended.items():
        known = {name: value for name, value in fields.items() if value is not None}
        cost = _cost({**stored.get(key, {}), **known}, prices)
        if cost is not None:
            rounds[key] = {**fields, "cost_usd": cost}


class EventPricing:
    """Applies a project's prices to its stored event runs."""

    def __init__(self, project: ProjectPool) -> None:
        """Set the project."""
        self._project = project
        self._prices = ModelPrices(project)

    async def batches(self) -> AsyncGenerator[list[UUID], None]:
        """Yield all event runs of the project, `RUNS_AT_ONCE` at a time."""
        after = _FIRST_ID
        while True:
            values = [self._project.project_id, after, RUNS_AT_ONCE]
            runs = [run_id for (run_id,) in await fetched(self._project, _NEXT, values)]
            if not runs:
                return
            yield runs
            after = runs[-1]

    async def apply(self, runs: Collection[UUID]) -> list[UUID]:
        """Set the costs of the rounds that a price of the project applies to.

        Other rounds keep their costs.

        Returns:
            The runs among `runs` that arrived as events and are not deleted.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        found: list[UUID] = []
        prices = await self._prices.known()
        with store_errors():
            spread = await is_spread(self._project.pool)
            most = runs_per_transaction(RUNS_AT_ONCE, is_spread=spread)
            in_order = sorted(runs)
            for begin in range(0, len(in_order), most):
                async with in_project(self._project, seconds=None) as connection:
                    found += await self._apply(connection, in_order[begin : begin + most], prices)
        return found

    async def _apply(
        self, connection: PoolConnection, runs: list[UUID], prices: OwnPrices
    ) -> list[UUID]:
        project_id = self._project.project_id
        cursor = await connection.execute(_LOCK, [project_id, runs])
        locked = [run_id for (run_id,) in await cursor.fetchall()]
        if not locked or not prices:
            return locked
        cursor = await connection.execute(_ROUNDS, [project_id, locked])
        changes: list[tuple[Any, ...]] = []
        for run_id, think_act_id, cost, *values in await cursor.fetchall():
            fields = dict(zip(_FIELDS, values, strict=True))
            new = _cost(fields, prices)
            if new is not None and new != cost:
                changes.append((run_id, think_act_id, new))
        if changes:
            columns = [list(column) for column in zip(*changes, strict=True)]
            changed = sorted(set(columns[0]))
            await connection.execute(_RAISE, [project_id, changed])
            await connection.execute(_CHANGE, [*columns, project_id, changed])
            await connection.execute(_SUM, [project_id, changed, project_id, changed])
        return locked


def _priced(event: Event) -> Event:
    """Return a model's answer with its cost by the price list, unless the event has a cost.

    Only the fields of the event itself count, so that the cost does not depend on the order of
    events.
    """
    if not isinstance(event, ThoughtRecorded) or event.cost_usd is not None:
        return event
    usage = _usage(vars(event))
    if usage is None or event.model is None:
        return event
    cost = cost_of(usage, event.model, provider=event.provider, at=event.at)
    return event if cost is None else event.model_copy(update={"cost_usd": cost})


def _usage(fields: Mapping[str, Any]) -> TokenUsage | None:
    """Return the tokens of a think-act; None if they are not known."""
    used, answered = fields.get("input_tokens"), fields.get("output_tokens")
    if used is None or answered is None:
        return None
    return TokenUsage(
        used,
        answered,
        fields.get("cache_read_tokens") or 0,
        fields.get("cache_written_tokens") or 0,
        fields.get("reasoning_tokens") or 0,
    )


def _cost(fields: Fields, prices: OwnPrices) -> Any:
    """Return the cost of an ended think-act; None if the project has no price for it."""
    models = fields.get("model"), fields.get("requested_model")
    return prices.cost_of(_usage(fields), models, fields.get("provider"), fields["finished_at"])


# --- Merges events into rows of the tables.
#
# The SQL is generated from `tracer.records.merge.RULES` when this module is imported. One statement
# takes any number of rows of several kinds, as one JSON array for each kind. It locks the runs and
# merges each row as `tracer.records.merge.merge_records` does. It changes only rows that differ. It
# adds the differences of old and new rows to the runs' totals, so that a repeated event does not
# count twice.
#
# All statements take the project's id as $1 and the server's time as $2, for a raw cursor: psycopg
# does not cache the parsed placeholders of statements as long as these.

_CACHED_RECORDS = 20_000


# Less than any value that an event can contain. Types without such a value get a flag in addition.
_NOTHING = {
    "INTEGER": "-1",
    "BIGINT": "-1",
    "NUMERIC": "-1",
    "TIMESTAMP WITH TIME ZONE": "'-infinity'",
    "record_status": "'unknown'",
}
_FLAGGED = {"TEXT": "''", "BOOLEAN": "false"}


class _Merge:
    """SQL for merging rows of one kind. `stored` is the stored row, and `excluded` the new row."""

    def __init__(self, kind: Kind) -> None:
        self.rules = RULES[kind]
        self.table = TABLES[kind]
        self.types = {
            field: column_type(self.table, field)
            for field in (self.rules.id_field, *self.rules.fields)
        }

    def incoming_columns(self) -> str:
        """Return the columns of the JSON rows."""
        columns = {"root_plan_id": "UUID"} | self.types
        return ", ".join(f"{name} {type_}" for name, type_ in columns.items())

    def values(self) -> dict[str, str]:
        """Return the SQL of each field's value in a row that is inserted."""
        return {field: f"incoming.{field}" for field in self.rules.fields}

    def singles(self) -> dict[str, str]:
        """Return, for each field that merges alone, the SQL of its merged value."""
        new = {}
        for function, fields in (("greatest", self.rules.greatest), ("least", self.rules.least)):
            for field in fields:
                new[field] = (
                    f"{function}(stored.{field}, excluded.{field}{self._byte_order(field)})"
                )
        for field in self.rules.union:
            new[field] = (
                f"CASE WHEN excluded.{field} IS NULL OR excluded.{field} <@ stored.{field}"
                f" THEN stored.{field} ELSE"
                f" ARRAY(SELECT DISTINCT item{self._byte_order(field)}"
                f" FROM unnest(stored.{field} || excluded.{field}) AS item ORDER BY 1) END"
            )
        return new

    def tuples(self) -> list[str]:
        """Return an assignment for each group of fields that merges as one tuple."""
        return [
            f"""({", ".join(columns)}) = (
                SELECT {", ".join(_either("it.is_greater", column) for column in columns)}
                FROM (SELECT {self.is_greater(columns)} AS is_greater OFFSET 0) AS it)"""
            for columns in self.rules.groups
        ]

    def is_greater(self, group: tuple[str, ...]) -> str:
        return f"{self._tuple('excluded', group)} > {self._tuple('stored', group)}"

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
        return ' COLLATE "C"' if self.types[field].startswith("TEXT") else ""

    def changes(self) -> str:
        """Return the SQL condition that the new row changes the stored one."""
        new = self.singles()
        before = ", ".join(f"stored.{field}" for field in new)
        after = ", ".join(new.values())
        return " OR ".join(
            [f"({before}) IS DISTINCT FROM ({after})", *map(self.is_greater, self.rules.groups)]
        )


def _either(condition: str, field: str) -> str:
    return f"CASE WHEN {condition} THEN excluded.{field} ELSE stored.{field} END"


def _lock_runs() -> str:
    merge = _Merge(Kind.RUN)
    new = ", ".join(f"{field} = {value}" for field, value in merge.singles().items())
    values = merge.values()
    return f"""
    INSERT INTO run AS stored (project_id, root_plan_id, status, recorded_at, revision, source,
        input_tokens, output_tokens, cost_usd, tool_calls, failed_calls, {", ".join(values)})
    SELECT $1, root_plan_id, 'unknown', $2, 1, 'events', 0, 0, 0, 0, 0,
        {", ".join(values.values())}
    FROM json_to_recordset($3) AS incoming ({merge.incoming_columns()})
    ORDER BY root_plan_id
    ON CONFLICT (project_id, root_plan_id) DO UPDATE SET revision = stored.revision + 1,
        changed_at = excluded.changed_at, {new}
    WHERE stored.deleted_at IS NULL AND stored.source = 'events'"""


LOCK_RUNS = _lock_runs()
"""Create or lock the runs of the rows $3 one by one, in the order of their ids, and increment their
revisions.

Every writer locks in this order, so that overlapping writes cannot deadlock.
"""


def _merge_statement(kinds: tuple[Kind, ...], apart: bool) -> str:
    """Return the statement that merges rows of `kinds` into existing runs.

    It locks the runs $4 as `LOCK_RUNS` does, raises their revision by $3, and merges the rows from
    $5 on, one parameter for each kind. It returns the runs that accept events: not those that were
    deleted or arrived as spans.

    Args:
        kinds: The kinds of the rows.
        apart: Whether Citus distributes the tables; the runs are then locked already. Each part of
            the statement looks up the runs itself: Citus would send rows that are passed between
            parts to all workers.
    """
    locked = f"({_OPEN}) AS locked" if apart else "locked"
    parts = [] if apart else [f"locked AS ({_OPEN} ORDER BY root_plan_id FOR NO KEY UPDATE)"]
    parts += [_changed(kind, f"${number}", locked) for number, kind in enumerate(kinds, 5)]
    new = {
        "revision": "locked.revision",
        "changed_at": "statement_timestamp()",
        "open_at": "CASE WHEN run.open_at IS NOT NULL THEN $2::timestamptz END",
    }
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
    singles["revision"] = "excluded.revision"
    assignments = [f"{field} = {value}" for field, value in singles.items()] + merge.tuples()
    return f"""{_name(kind)} AS (
        INSERT INTO {merge.table} AS stored
            (project_id, root_plan_id, {key}, recorded_at, revision, {", ".join(values)})
        SELECT $1, locked.root_plan_id, incoming.{key}, $2, locked.revision,
            {", ".join(values.values())}
        FROM json_to_recordset({rows}) AS incoming ({merge.incoming_columns()})
        JOIN {locked} ON locked.root_plan_id = incoming.root_plan_id
        ORDER BY incoming.root_plan_id, incoming.{key}
        ON CONFLICT (project_id, root_plan_id, {key}) DO UPDATE
        SET {", ".join(assignments)}
        WHERE {merge.changes()}
        {_RETURNING.get(kind, "")}
    )"""


_FAILED = (
    "(new.status = 'failed')::int - coalesce(old.status = 'failed', false)::int AS failed_calls"
)
_NUMBERS = ("input_tokens", "output_tokens", "cost_usd")

_RETURNING = {
    Kind.PLAN: "RETURNING new.root_plan_id, new.plan_id, "
    + ", ".join(f"new.{c}" for c in FROM_ROOT_PLAN),
    Kind.THINK_ACT: "RETURNING new.root_plan_id, "
    + ", ".join(f"coalesce(new.{c}, 0) - coalesce(old.{c}, 0) AS {c}" for c in _NUMBERS)
    + f", {unpriced('new')} - {unpriced('old')} AS unpriced_calls, {_FAILED}",
    Kind.TOOL_CALL: (
        f"RETURNING new.root_plan_id, (old.tool_call_id IS NULL)::int AS tool_calls, {_FAILED}"
    ),
}
"""The values of each changed row that the run's totals need."""

_COUNTED = {
    Kind.THINK_ACT: (*_NUMBERS, "unpriced_calls", "failed_calls"),
    Kind.TOOL_CALL: ("tool_calls", "failed_calls"),
}
"""The columns whose sums are stored in the run."""


MERGE = {
    (kinds, apart): _merge_statement(kinds, apart)
    for number in range(len(RECORDS) + 1)
    for kinds in combinations(RECORDS, number)
    for apart in (False, True)
}
"""The statement of each combination of kinds, on one Postgres and on Citus."""


def _may_settle(key: Key, fields: Fields) -> bool:
    """Return whether a plan's record may change the status of a run whose root plan has ended."""
    is_running_root = key[0] == key[1] and fields.get("status") is Status.RUNNING
    return bool(fields) and not is_running_root


Heartbeats = Callable[[Iterable[Event]], list[Statement]]


class EventRows:
    """Writes events and records as rows of a project's tables, in one transaction each time."""

    def __init__(
        self,
        project: ProjectPool,
        heartbeats: Heartbeats,
        prices: Callable[[], Awaitable[OwnPrices]],
    ) -> None:
        """Prepare to write events.

        Args:
            project: The project of the events, with its connections.
            heartbeats: Returns the statements that record events as heartbeats.
            prices: Returns the prices that the project has set.
        """
        self._project = project
        self._prices = prices
        self._heartbeats = heartbeats
        self._cache = MergeCache()

    async def write(self, events: Sequence[Event], now: datetime) -> set[UUID]:
        """Store events. Return the runs that accept events; events of other runs are not stored.

        Args:
            events: The events.
            now: The time at which new rows are recorded.
        """
        records = merge_records(partial_records(map(_priced, events)))
        await price_rounds(self._project, records[Kind.THINK_ACT], await self._prices())
        runs = {event.root_plan_id for event in events}
        for run_id in runs:
            records[Kind.RUN].setdefault((run_id, run_id), {})
        heartbeats = self._heartbeats(events)
        # Citus reports broken references too late for a second attempt.
        cache = MergeCache() if await is_spread(self._project.pool) else self._cache
        unseen = cache.unseen(records)
        if unseen[Kind.RUN]:  # either all runs are locked in one order, or none
            unseen[Kind.RUN] = records[Kind.RUN]
        try:
            open_runs = await self.upsert(unseen, runs, now, heartbeats)
            is_complete = bool(unseen[Kind.RUN]) or open_runs == runs
        except ForeignKeyViolation:
            is_complete = False
        if not is_complete:  # a cached row is gone, as after a restore of an older backup
            cache.clear()
            unseen = records
            open_runs = await self.upsert(unseen, runs, now, heartbeats)
        cache.add(unseen, open_runs)
        return open_runs

    async def upsert(
        self, records: Reduced, runs: Set[UUID], now: datetime, more: Sequence[Statement]
    ) -> set[UUID]:
        """Merge records into the tables in one transaction, and return the runs that accept events.

        Args:
            records: The records. They include the runs themselves, unless all of these are already
                stored.
            runs: The runs that they belong to.
            now: The time at which new rows are recorded.
            more: Statements to execute afterwards in the same transaction.
        """
        project_id = self._project.project_id
        locking: list[Statement] = [
            (LOCK_RUNS, [project_id, now, rows])
            for rows in json_batches(Kind.RUN, records[Kind.RUN])
        ]
        merging: list[Statement] = []
        growth = 0 if locking else 1
        apart = await is_spread(self._project.pool)
        for batches in zip_longest(*(json_batches(kind, records[kind]) for kind in RECORDS)):
            rows = {kind: batch for kind, batch in zip(RECORDS, batches, strict=True) if batch}
            values = [project_id, now, growth, sorted(runs), *rows.values()]
            merging.append((MERGE[tuple(rows), apart], values))
            growth = 0
        if any(_may_settle(*plan) for plan in records[Kind.PLAN].items()):
            merging.append((SETTLE_OPEN, [project_id, now, sorted(runs)]))
        statements = [*locking, *merging, *more]
        answers = await retry_on_conflict(executed, self._project, statements)
        return {run_id for (run_id,) in answers[len(locking)]}


class MergeCache:
    """Remembers which records were merged and committed, except tool calls.

    Every event names the parents of its record. Most parents are stored already, so they need no
    second merge. No other writer undoes a merge. A cached row can be missing only if the database
    was restored from an older backup. Then the foreign key of the next event fails.
    """

    def __init__(self) -> None:
        self._links: dict[tuple[Kind, Key], Fields] = {}

    def unseen(self, records: Reduced) -> Reduced:
        """Return the records that are not in the cache, or that change a cached record."""
        return {
            kind: {
                key: fields for key, fields in of_kind.items() if self._is_new(kind, key, fields)
            }
            for kind, of_kind in records.items()
        }

    def add(self, records: Reduced, runs: Collection[UUID]) -> None:
        """Add the records of `runs` after their commit."""
        for kind, of_kind in records.items():
            if kind is Kind.TOOL_CALL:  # as many as all others together, and seldom parents
                continue
            for key, fields in of_kind.items():
                if key[0] in runs:
                    links = {name: fields.get(name) for name in LINKS[kind]}
                    self._links.setdefault((kind, key), {}).update(
                        (name, link) for name, link in links.items() if link is not None
                    )
        while len(self._links) > _CACHED_RECORDS:
            del self._links[next(iter(self._links))]

    def clear(self) -> None:
        """Remove everything."""
        self._links.clear()

    def _is_new(self, kind: Kind, key: Key, fields: Fields) -> bool:
        links = self._links.get((kind, key))
        if links is None or fields.get("status", Status.UNKNOWN) is not Status.UNKNOWN:
            return True
        return any(
            value is not None and links.get(name) != value
            for name, value in fields.items()
            if name != "status"
        )
