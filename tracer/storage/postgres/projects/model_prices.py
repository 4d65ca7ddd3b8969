"""A project's own prices of models."""

from __future__ import annotations

from datetime import date
from typing import Any

from psycopg.errors import CheckViolation, NumericValueOutOfRange

from tracer.errors import BadRequest
from tracer.records.prices import ModelPrice, OwnPrices
from tracer.storage.postgres.connection.pool import store_errors
from tracer.storage.postgres.connection.project_session import ProjectPool, in_project
from tracer.storage.postgres.projects.cached import Cached
from tracer.text import storable


class ModelPrices:
    """The prices of one project, with a short-lived cache."""

    def __init__(self, project: ProjectPool) -> None:
        self._project = project
        self._cached = Cached(self._look_up)

    async def known(self) -> OwnPrices:
        """Return the prices from a cache. They may be two seconds old.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        return await self._cached.get()

    async def _look_up(self) -> OwnPrices:
        return OwnPrices(await self.list_prices())

    async def list_prices(self) -> list[ModelPrice]:
        """Return the prices, sorted by model, provider and first day.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            async with in_project(self._project) as connection:
                cursor = await connection.execute(
                    READ_PRICES.format("%s"), [self._project.project_id]
                )
                return [price_of(row) for row in await cursor.fetchall()]

    async def set_price(self, price: ModelPrice) -> None:
        """Add a price, or replace the price of the same model, provider and first day.

        Raises:
            BadRequest: A value is not valid.
            StoreUnavailable: The database does not answer.
        """
        values = {
            **vars(price),
            "project_id": self._project.project_id,
            "model": storable(price.model),
            "provider": storable(price.provider or ""),
        }
        try:
            with store_errors():
                async with in_project(self._project) as connection:
                    await connection.execute(_SET, values)
        except (CheckViolation, NumericValueOutOfRange):
            raise BadRequest(
                "A model's name must have 1 to 200 characters, and a rate must be from 0 to "
                "1,000,000 dollars."
            ) from None
        self._cached.set(await self._look_up())

    async def delete(self, model: str, provider: str | None, valid_from: date) -> bool:
        """Delete a price. Return whether the project had it.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        values = [self._project.project_id, storable(model), storable(provider or ""), valid_from]
        with store_errors():
            async with in_project(self._project) as connection:
                cursor = await connection.execute(_DELETE, values)
                is_deleted = await cursor.fetchone() is not None
        self._cached.set(await self._look_up())
        return is_deleted


def price_of(row: tuple[Any, ...]) -> ModelPrice:
    """Return a row of `READ_PRICES` as a price."""
    model, provider, *rest = row
    return ModelPrice(model, provider or None, *rest)


READ_PRICES = """
SELECT model, provider, valid_from, input_usd, output_usd, cache_read_usd, cache_write_usd,
    reasoning_usd
FROM model_price WHERE project_id = {} ORDER BY model, provider, valid_from"""
"""Selects the prices of a project. Replace `{}` by a placeholder for the project's id."""

_SET = """
INSERT INTO model_price (project_id, model, provider, valid_from, input_usd, output_usd,
    cache_read_usd, cache_write_usd, reasoning_usd)
VALUES (%(project_id)s, %(model)s, %(provider)s, %(valid_from)s, %(input_usd)s, %(output_usd)s,
    %(cache_read_usd)s, %(cache_write_usd)s, %(reasoning_usd)s)
ON CONFLICT (project_id, model, provider, valid_from) DO UPDATE
SET (input_usd, output_usd, cache_read_usd, cache_write_usd, reasoning_usd) =
    (excluded.input_usd, excluded.output_usd, excluded.cache_read_usd, excluded.cache_write_usd,
    excluded.reasoning_usd)"""

_DELETE = """
DELETE FROM model_price
WHERE project_id = %s AND model = %s AND provider = %s AND valid_from = %s
RETURNING model"""
