"""What models cost, by the price list that comes with `genai-prices`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tracer.clock import utc_now

if TYPE_CHECKING:
    from genai_prices import Usage
    from genai_prices.types import ModelInfo, Provider

MOST_TOKENS = 2**40
"""No answer has as many; the totals of a run with many such answers would fit into no column."""

MOST_USD = 10**9
USD_PLACES = 12

_MAX_NAME = 200
"""Longer names are in no list, and would fill the memory that remembers prices."""

_PROVIDERS = {
    "az.ai.inference": "azure",
    "azure.ai.inference": "azure",
    "gcp.gen_ai": "google",
    "x_ai": "x-ai",
}
"""Names of OpenTelemetry's conventions that the list does not know."""


class TokenUsage(NamedTuple):
    """The tokens of one answer."""

    input: int
    """What the model was given, what the provider kept of it included."""
    output: int
    cache_read: int = 0
    """Those of the input that the provider had in its cache."""
    cache_written: int = 0
    """Those of the input that it put there."""


def token_count(value: object) -> int | None:
    """Return a number of tokens; None for what cannot be recorded as one."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < MOST_TOKENS else None


def usd(value: object) -> Decimal | None:
    """Return an amount in US dollars; None for what cannot be recorded as one."""
    if value is None:
        return None
    try:
        amount = round(Decimal(str(value)), USD_PLACES)
        return amount if 0 <= amount < MOST_USD else None
    except (ArithmeticError, ValueError):  # no number, or one of more digits than Python writes
        return None


def cost_of(
    usage: TokenUsage,
    model: str,
    *,
    provider: str | None = None,
    address: str | None = None,
    at: datetime | None = None,
) -> Decimal | None:
    """Return what an answer costs by the price list, in US dollars; None where it has no price.

    Args:
        usage: Its tokens.
        model: The model that answered.
        provider: Whose model it is; without provider and address the list goes by the model's name.
        address: The provider, as the address that was asked.
        at: When, since prices change; now unless given.
    """
    if max(len(model), len(provider or ""), len(address or "")) > _MAX_NAME:
        return None
    found = _find(model, provider, address)
    if found is None:
        return None
    listed, seller = found
    try:
        prices = listed.get_prices(at or utc_now())
        total = text_price(vars(prices), usage)
        if total is None:
            total = listed.calc_price(_usage(usage), seller, genai_request_timestamp=at).total_price
        return round(total, USD_PLACES) if any(vars(prices).values()) else None
    except (ValueError, ArithmeticError):
        return None  # the counts contradict each other, or are beyond all measure


def text_price(prices: Mapping[str, Any], usage: TokenUsage) -> Decimal | None:
    """Return what the library's `calc_price` does, in a tenth of its time.

    Of tokens that are no text, of searches and of all else that it knows prices of, an answer has
    none here, so that only four prices count. None where each request has a price besides.
    """
    if prices.get("requests_kcount") is not None:
        return None
    total, fresh = Decimal(0), usage.input
    for name, count in (
        ("cache_read_mtok", usage.cache_read),
        ("cache_write_mtok", usage.cache_written),
    ):
        if prices.get(name) is not None:
            total += _price_at(prices[name], usage.input) * count
            fresh -= count
    if prices.get("input_mtok") is not None:
        if fresh < 0:
            raise ValueError("more tokens from a cache than there are")
        total += _price_at(prices["input_mtok"], usage.input) * fresh
    if prices.get("output_mtok") is not None:
        total += _price_at(prices["output_mtok"], usage.input) * usage.output
    return total / 1_000_000


def _price_at(price: Any, tokens: int) -> Decimal:
    """Return a price at a size of the request: some models have tiers."""
    if isinstance(price, Decimal):
        return price
    above = (tier.price for tier in reversed(price.tiers) if tokens > tier.start)
    tiered: Decimal = next(above, price.base)
    return tiered


def _usage(usage: TokenUsage) -> Usage:
    from genai_prices import Usage

    return Usage(
        input_tokens=usage.input,
        output_tokens=usage.output,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_written,
    )


@lru_cache(maxsize=1024)
def _find(
    model: str, provider: str | None, address: str | None
) -> tuple[ModelInfo, Provider] | None:
    # Where something has a price: the library takes a third of a second to be there.
    from genai_prices.data import providers
    from genai_prices.data_snapshot import DataSnapshot

    # A snapshot of its own: the library's remembers every name that it was ever asked for.
    listed = DataSnapshot(providers=providers, from_auto_update=False)
    named = _PROVIDERS.get(provider, provider) if provider else None
    try:
        seller, found = listed.find_provider_model(model, None, named, address)
    except LookupError:
        return None
    return found, seller
