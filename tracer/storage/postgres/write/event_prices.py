"""Compute the costs of event runs from the project's prices: when events arrive, and on request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping
from typing import Any
from uuid import UUID

from tracer.records.merge import Fields, Key
from tracer.records.prices import OwnPrices, TokenUsage
from tracer.storage.postgres.connection.citus import is_spread, runs_per_transaction
from tracer.storage.postgres.connection.pool import PoolConnection, store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool, fetched, in_project
from tracer.storage.postgres.projects.model_prices import ModelPrices
from tracer.storage.postgres.schema.record_tables import unpriced

RUNS_AT_ONCE = 200
"""How many runs are locked together."""

_FIRST_ID = UUID(int=0)


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


_FIELDS = (
    *("requested_model", "model", "provider", "finished_at", "input_tokens", "output_tokens"),
    *("cache_read_tokens", "cache_written_tokens", "reasoning_tokens"),
)


def _usage(fields: Fields) -> TokenUsage | None:
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
UPDATE run SET revision = revision + 1 WHERE project_id = %s AND root_plan_id = ANY(%s)"""

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
