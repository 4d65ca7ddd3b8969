"""What models cost, by the price list that comes with `genai-prices`."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider

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
    if at is None:
        return _cost(usage, model, provider, address, at)
    return _cost_then(usage, model, provider, address, at)


def _cost(
    usage: TokenUsage, model: str, provider: str | None, address: str | None, at: datetime | None
) -> Decimal | None:
    found = _find(model, provider, address)
    if found is None:
        return None
    from genai_prices import Usage

    listed, seller = found
    counts = Usage(
        input_tokens=usage.input,
        output_tokens=usage.output,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_written,
    )
    try:
        price = listed.calc_price(counts, seller, genai_request_timestamp=at)
        return round(price.total_price, 12) if any(vars(price.model_price).values()) else None
    except (ValueError, ArithmeticError):
        return None  # the counts contradict each other, or are beyond all measure


_cost_then = lru_cache(maxsize=8192)(_cost)
"""Remembers: a trace that grows asks for the same again and again, and asking takes its time."""


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
