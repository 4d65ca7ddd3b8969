"""Routes for the model prices that the caller's project has set."""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from decimal import Decimal
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)

from api.dependencies import Administering, Prices, Reading
from api.problems import documented
from api.requests import StoredText
from api.routes.keys import ClosedSchema
from tracer.errors import RecordNotFound
from tracer.records.prices import ALWAYS, ModelPrice

# --- Schemas of prices of models.

ModelName = Annotated[
    StoredText,
    AfterValidator(str.strip),
    Field(
        min_length=1,
        max_length=200,
        description="The name of the model, or a prefix of model names followed by `*`.",
    ),
]
ProviderName = Annotated[StoredText, Field(min_length=1, max_length=200)]


def _full_date(value: object) -> date:
    """Return a `full-date` of RFC 3339. Pydantic would also read a number of seconds as a day."""
    if isinstance(value, date):
        return value
    with suppress(ValueError):
        if isinstance(value, str) and (day := date.fromisoformat(value)).isoformat() == value:
            return day
    raise ValueError("write the day as YYYY-MM-DD, such as 2026-11-01")


FirstDay = Annotated[date, BeforeValidator(_full_date)]

Rate = Annotated[
    Decimal,
    Field(ge=0, le=1_000_000, max_digits=18, decimal_places=12),
    PlainSerializer(float, return_type=float),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1_000_000}),
]


class PriceSchema(ClosedSchema):
    """The price of a model in a project. Rates are in US dollars per million tokens."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "model": "ft:gpt-4o-mini-2024-07-18:ward:*",
                    "provider": "openai",
                    "validFrom": "2026-11-01",
                    "inputUsd": 0.3,
                    "outputUsd": 1.2,
                    "cacheReadUsd": 0.15,
                    "cacheWriteUsd": None,
                    "reasoningUsd": None,
                }
            ]
        }
    )

    model: ModelName
    provider: ProviderName | None = None
    """The provider to which the price applies; null: every provider."""
    valid_from: FirstDay = ALWAYS
    """The first day of the price, in UTC. The price applies to calls that end on or after it."""
    input_usd: Rate
    """The rate of input tokens."""
    output_usd: Rate
    """The rate of output tokens."""
    cache_read_usd: Rate | None = None
    """The rate of input tokens that were read from a cache; null: the rate of input tokens."""
    cache_write_usd: Rate | None = None
    """The rate of input tokens that were written to a cache; null: the rate of input tokens."""
    reasoning_usd: Rate | None = None
    """The rate of output tokens that were used for reasoning; null: the rate of output tokens."""

    def price(self) -> ModelPrice:
        """Return the price."""
        return ModelPrice(**self.model_dump())


class PriceList(ClosedSchema):
    """The prices that the project has set."""

    items: list[PriceSchema]


router = APIRouter(prefix="/api/prices", tags=["access"])


@router.get("")
async def list_prices(prices: Prices, _: Reading) -> PriceList:
    """List the prices that the project has set, sorted by model, provider and first day."""
    return PriceList(
        items=[PriceSchema.model_validate(each) for each in await prices.list_prices()]
    )


@router.put("")
async def set_price(wanted: PriceSchema, prices: Prices, _: Administering) -> PriceSchema:
    """Set the price of a model. It replaces a price of the same model, provider and first day.

    Within two seconds, servers apply the price to model calls that they record. To apply it to
    stored runs, run `tracer reproject --prices`.
    """
    await prices.set_price(wanted.price())
    return wanted


@router.delete("", status_code=HTTPStatus.NO_CONTENT, responses=documented(HTTPStatus.NOT_FOUND))
async def delete_price(
    model: Annotated[ModelName, Query()],
    prices: Prices,
    _: Administering,
    provider: Annotated[ProviderName | None, Query(description="The price's provider.")] = None,
    valid_from: Annotated[
        FirstDay, Query(alias="validFrom", description="The first day of the price.")
    ] = ALWAYS,
) -> None:
    """Delete a price. Costs that are already stored do not change."""
    if not await prices.delete(model, provider, valid_from):
        raise RecordNotFound("price", model)
