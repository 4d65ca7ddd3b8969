"""Prices of models: a project's own, and the price list of the `genai-prices` package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tracer.clock import utc_now
from tracer.records.status import Status

if TYPE_CHECKING:
    from genai_prices import Usage
    from genai_prices.types import ModelInfo, Provider

MOST_TOKENS = 2**40
"""Larger counts are rejected, so that the sums of a run fit into their columns."""

MOST_USD = 10**9
USD_PLACES = 12

_MAX_NAME = 200
"""Longer names are not in the price list, and would fill the cache."""

_PROVIDERS = {
    "az.ai.inference": "azure",
    "azure.ai.inference": "azure",
    "gcp.gen_ai": "google",
    "x_ai": "x-ai",
}
"""Provider names of OpenTelemetry's conventions, and those of the price list for them."""


class TokenUsage(NamedTuple):
    """The tokens of one response."""

    input: int
    """Tokens of the prompt, including cached ones."""
    output: int
    cache_read: int = 0
    """Tokens of the prompt that the provider read from its cache."""
    cache_written: int = 0
    """Tokens of the prompt that the provider wrote to its cache."""
    reasoning: int = 0
    """Tokens of the response that the model used for reasoning."""


@dataclass(frozen=True)
class ModelPrice:
    """A project's own price of a model. Rates are US dollars for a million tokens."""

    model: str
    """The name of the model, or the beginning of names followed by `*`."""
    provider: str | None
    """The provider to which the price applies; None: every provider."""
    valid_from: date
    """The first day, in UTC, on which the price holds."""
    input_usd: Decimal
    output_usd: Decimal
    cache_read_usd: Decimal | None = None
    """The rate of input tokens that were read from a cache; None: that of the input."""
    cache_write_usd: Decimal | None = None
    """The rate of input tokens that were written to a cache; None: that of the input."""
    reasoning_usd: Decimal | None = None
    """The rate of output tokens of reasoning; None: that of the output."""

    def cost(self, usage: TokenUsage | None) -> Decimal | None:
        """Return the cost of a response; None if its counts are inconsistent or too large.

        If its tokens are unknown, the cost is known only if all rates are zero.
        """
        rates = {
            "input_mtok": self.input_usd,
            "output_mtok": self.output_usd,
            "cache_read_mtok": self.cache_read_usd,
            "cache_write_mtok": self.cache_write_usd,
            "output_reasoning_mtok": self.reasoning_usd,
        }
        if usage is None:
            return None if any(rates.values()) else Decimal(0)
        try:
            return usd(text_price(rates, usage))
        except ValueError:
            return None


class OwnPrices:
    """The prices of a project, to look up."""

    def __init__(self, prices: Iterable[ModelPrice] = ()) -> None:
        """Set the prices."""
        self._of: dict[tuple[str, str | None], list[ModelPrice]] = {}
        for price in sorted(prices, key=lambda each: each.valid_from, reverse=True):
            self._of.setdefault((price.model, price.provider), []).append(price)
        beginnings = {model[:-1] for model, _ in self._of if model.endswith("*")}
        self._beginnings = sorted(beginnings, key=len, reverse=True)

    def __bool__(self) -> bool:
        return bool(self._of)

    def cost_of(
        self,
        usage: TokenUsage | None,
        models: Iterable[str | None],
        provider: str | None,
        at: datetime,
    ) -> Decimal | None:
        """Return the cost of a response; None if the project has no price for it.

        A price of the whole name is taken before one of its beginning, the longest beginning before
        shorter ones, and a price of the provider before one of all providers.

        Args:
            usage: Its tokens; None: unknown.
            models: The names of the model: the first with a price determines the cost.
            provider: The model's provider; None: unknown.
            at: When the response ended.
        """
        day = at.astimezone(UTC).date()
        for model in models:
            if model is None:
                continue
            beginnings = (f"{each}*" for each in self._beginnings if model.startswith(each))
            for name in (model, *beginnings):
                for key in dict.fromkeys(((name, provider), (name, None))):
                    for price in self._of.get(key, ()):
                        if price.valid_from <= day:
                            return price.cost(usage)
        return None


NO_OWN_PRICES = OwnPrices()

ALWAYS = date(1970, 1, 1)
"""The first day of prices that always held."""


_Usd = TypeVar("_Usd", Decimal, float)


def known_total(cost: _Usd, unpriced_calls: int) -> _Usd | None:
    """Return the sum of known costs; None if it is zero and the cost of some calls is unknown."""
    return None if unpriced_calls and not cost else cost


def is_unpriced(status: str, usage: tuple[int | None, int | None], cost: object) -> bool:
    """Return whether the cost of a model call is unknown.

    A call that has neither an answer nor tokens costs nothing.

    Args:
        status: The status of the think-act.
        usage: Its input and output tokens.
        cost: Its cost; None if it has none.
    """
    return cost is None and (status == Status.SUCCEEDED or any(usage))


def token_count(value: object) -> int | None:
    """Return a number of tokens; None if the value cannot be recorded as one."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < MOST_TOKENS else None


def usd(value: object) -> Decimal | None:
    """Return an amount in US dollars; None if the value cannot be recorded as one."""
    if value is None:
        return None
    try:
        amount = round(Decimal(str(value)), USD_PLACES)
        return amount if 0 <= amount < MOST_USD else None
    except (ArithmeticError, ValueError):  # not a number, or one with too many digits
        return None


def cost_of(
    usage: TokenUsage,
    model: str,
    *,
    provider: str | None = None,
    address: str | None = None,
    at: datetime | None = None,
) -> Decimal | None:
    """Return the price of a response in US dollars; None if the price list does not have it.

    Args:
        usage: The tokens of the response.
        model: The model that responded.
        provider: The model's provider. If both provider and address are None, the model's name
            determines it.
        address: The URL of the provider's API.
        at: The time of the request, because prices change; by default now.
    """
    if max(len(model), len(provider or ""), len(address or "")) > _MAX_NAME:
        return None
    match = _find(model, provider, address)
    if match is None:
        return None
    listed, seller = match
    try:
        prices = listed.get_prices(at or utc_now())
        total = text_price(vars(prices), usage)
        if total is None:
            total = listed.calc_price(_usage(usage), seller, genai_request_timestamp=at).total_price
        return round(total, USD_PLACES) if any(vars(prices).values()) else None
    except (ValueError, ArithmeticError):
        return None  # the counts are inconsistent, or too large


def text_price(prices: Mapping[str, Any], usage: TokenUsage) -> Decimal | None:
    """Compute the same price as the library's `calc_price`, in a tenth of the time.

    Only text tokens are recorded, so only four of its prices apply. None if there is also a price
    per request.
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
            raise ValueError("the round has more cached tokens than input tokens")
        total += _price_at(prices["input_mtok"], usage.input) * fresh
    visible = usage.output
    if prices.get("output_reasoning_mtok") is not None:
        total += _price_at(prices["output_reasoning_mtok"], usage.input) * usage.reasoning
        visible -= usage.reasoning
    if prices.get("output_mtok") is not None:
        if visible < 0:
            raise ValueError("the round has more reasoning tokens than output tokens")
        total += _price_at(prices["output_mtok"], usage.input) * visible
    return total / 1_000_000


def _price_at(price: Any, tokens: int) -> Decimal:
    """Return the price for a number of input tokens; some models have tiers."""
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
        output_reasoning_tokens=usage.reasoning,
    )


@lru_cache(maxsize=1024)
def _find(
    model: str, provider: str | None, address: str | None
) -> tuple[ModelInfo, Provider] | None:
    # Imported when first needed, because the library takes a third of a second to load.
    from genai_prices.data import providers
    from genai_prices.data_snapshot import DataSnapshot

    # Not the library's own snapshot, whose cache of names grows without limit.
    listed = DataSnapshot(providers=providers, from_auto_update=False)
    provider_name = _PROVIDERS.get(provider, provider) if provider else None
    try:
        seller, match = listed.find_provider_model(model, None, provider_name, address)
    except LookupError:
        return None
    return match, seller
