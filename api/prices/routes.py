"""Routes for the model prices that the caller's project has set."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import Administering, Prices, Reading
from api.http.problems import documented
from api.prices.schemas import FirstDay, ModelName, PriceList, PriceSchema, ProviderName
from tracer.errors import RecordNotFound
from tracer.records.prices import ALWAYS

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
