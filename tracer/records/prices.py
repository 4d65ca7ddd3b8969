"""Prices of model calls: the project's own prices, and the price list of `genai-prices`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tracer.clock import utc_now
from tracer.records.status import Status

if TYPE_CHECKING:
    from genai_prices import Usage
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, Provider

# --- Normalize the names of models, so that each spelling finds the model's price.
#
# Resellers, gateways and SDKs add prefixes (`vertex_ai/`, `models/`, an ARN) and suffixes (`@date`,
# `-latest`, `-v1:0`) to the names that their makers use.

_PROVIDERS = {
    "az.ai.inference": "azure",
    "az.ai.openai": "azure",
    "azure.ai.inference": "azure",
    "azure.ai.openai": "azure",
    "azure_ai": "azure",
    "azure_openai": "azure",
    "azureopenai": "azure",
    "amazon": "aws",
    "amazon_bedrock": "aws",
    "amazon.bedrock": "aws",
    "aws.bedrock": "aws",
    "aws_bedrock": "aws",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "converse": "aws",
    "claude": "anthropic",
    "cohere_chat": "cohere",
    "fireworks_ai": "fireworks",
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "gemini": "google",
    "google_genai": "google",
    "google-genai": "google",
    "google_gla": "google",
    "google-gla": "google",
    "google_vertexai": "google",
    "google-vertex": "google",
    "google-vertexai": "google",
    "vertex": "google",
    "vertex_ai": "google",
    "vertexai": "google",
    "mistral_ai": "mistral",
    "mistralai": "mistral",
    "moonshot": "moonshotai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "open_router": "openrouter",
    "text-completion-openai": "openai",
    "together_ai": "together",
    "togetherai": "together",
    "x_ai": "x-ai",
    "xai": "x-ai",
}
"""The provider's name in the price list, by its names in conventions, gateways and SDKs."""
_LISTED = frozenset(
    "anthropic aws azure cerebras cohere deepseek fireworks google groq meta minimax"
    " mistral moonshotai novita openai openrouter perplexity together voyageai x-ai zai".split()
)
"""Providers of the price list that occur as the prefix of a model's name."""
_OWN_COMPUTERS = frozenset(
    "ollama lmstudio lm_studio vllm hosted_vllm llama.cpp llamacpp local llamafile mlx"
    " sglang localai ollama_chat".split()
)
"""Programs that run models on the user's own computers. Their models have no price."""
_MAKERS = frozenset("anthropic google openai x-ai".split())
"""Providers whose models nobody else can run. Whoever offers these models resells them."""
_OF_SDK = re.compile(r"\.(?:chat|completion|messages|responses)$")
"""What the AI SDK adds to the name of a provider."""
_ARN = re.compile(r"arn:[^:]*:bedrock:[^:]*:[^:]*:[^/]+/(.+)")
_PATH = re.compile(r"(?:.*/)?publishers/([^/]+)/models/(.+)")
_BEDROCK = re.compile(r"(?:[a-z]+\.)?(ai21|amazon|anthropic|cohere|meta|mistral)\.([a-z].*)")
"""The names of models in Amazon Bedrock: an optional region, the maker and the model. If no
provider is stated, the maker's own price applies, because Bedrock's differs by region."""
_SUFFIXES = re.compile(r"(?:@[\w.-]+|:[a-z]\w*|-v\d+(?::\d+\w*)?|[-_](?:latest|preview|exp))$")
_DATE = re.compile(r"-(?:20\d{6}|20\d\d-\d\d-\d\d|\d\d-\d\d(?:-20\d\d)?|\d{4})$")
_MOST_SUFFIXES = 3


def provider_name(provider: str) -> str:
    """Return the name of a provider in the price list; `provider` itself if it is unknown."""
    name = provider.lower().partition("/")[0]
    for each in (name, name.removesuffix(".chat").removesuffix(".messages")):
        if each in _PROVIDERS:
            return _PROVIDERS[each]
    # The AI SDK writes `openai.responses`, `anthropic.messages` and `google.generative-ai`.
    first = name.partition(".")[0]
    return first if first in _LISTED else _PROVIDERS.get(first, provider)


def spellings(model: str, provider: str | None) -> Iterator[tuple[str, str | None]]:
    """Yield names of a model with its provider, in the order in which a price is looked for.

    The name as it was recorded comes first, then it without what resellers add to it. The prefix of
    a name replaces a provider that is missing or is a gateway. Nothing is yielded for models that
    cost nothing: on the user's own computer, and OpenRouter's variants `:free`.
    """
    if model.endswith(":free") or (provider is not None and provider.lower() in _OWN_COMPUTERS):
        return
    seller = provider_name(provider) if provider is not None else None
    name, maker = _without_prefixes(model)
    if maker in _OWN_COMPUTERS:
        return
    sellers = dict.fromkeys((seller, maker)) if maker is not None else (seller,)
    yield model, seller
    for _ in range(_MOST_SUFFIXES):
        for each in sellers:
            yield name, each
        shorter = _SUFFIXES.sub("", name)
        shorter = _DATE.sub("", name) if shorter == name else shorter
        if shorter == name or not shorter:
            return
        name = shorter
    for each in sellers:
        yield name, each


def _without_prefixes(model: str) -> tuple[str, str | None]:
    """Return a model's name without paths and prefixes, and the provider that they name."""
    name, maker = model.strip(), None
    if (arn := _ARN.fullmatch(name)) is not None:
        name, maker = arn[1], "aws"
    if (path := _PATH.fullmatch(name)) is not None:
        return path[2], provider_name(path[1])
    name = name.rpartition("/")[2] if name.startswith("projects/") else name
    while True:
        head, separator, rest = name.partition("/")
        if not separator and not _BEDROCK.fullmatch(name):
            head, _, rest = name.partition(":")
        if not rest:
            of_bedrock = _BEDROCK.fullmatch(name) if maker is None else None
            if of_bedrock is None:
                return name, maker
            return (of_bedrock[2], of_bedrock[1]) if of_bedrock[1] in _LISTED else (name, "aws")
        prefix = head.lower()
        if prefix in _OWN_COMPUTERS:
            return rest, prefix
        provider = _PROVIDERS.get(prefix, prefix)
        if provider in _LISTED:
            maker = provider if maker is None else maker
        elif prefix not in ("models", "litellm", "litellm_proxy", "tunedmodels"):
            return name, maker
        name = rest


MOST_TOKENS = 2**40
"""Larger counts are rejected, so that the sums of a run fit into their columns."""

MOST_USD = 10**9
USD_PLACES = 12

_MAX_NAME = 200
"""The maximum length of a model's name that is looked up. No name in the price list is longer, and
longer names would fill the cache."""


class TokenUsage(NamedTuple):
    """The token counts of one model response."""

    input: int
    """Tokens of the prompt, including cached ones."""
    output: int
    cache_read: int = 0
    """Tokens of the prompt that the provider read from its cache."""
    cache_written: int = 0
    """Tokens of the prompt that the provider wrote to its cache."""
    reasoning: int = 0
    """Tokens of the response that the model used for reasoning."""
    cache_written_hour: int = 0
    """Those of `cache_written` that the provider caches for an hour."""
    audio_input: int = 0
    """Tokens of the prompt that are audio, not cached."""
    audio_output: int = 0
    """Tokens of the response that are audio."""


RATES = ("input_usd", "output_usd", "cache_read_usd", "cache_write_usd", "reasoning_usd")
"""The fields of a `ModelPrice` that are rates."""


@dataclass(frozen=True)
class ModelPrice:
    """A project's own price for a model. Rates are US dollars per million tokens."""

    model: str
    """The name of the model, or a prefix of model names followed by `*`."""
    provider: str | None
    """The provider to which the price applies; None: every provider."""
    valid_from: date
    """The first day, in UTC, on which the price holds."""
    input_usd: Decimal
    output_usd: Decimal
    cache_read_usd: Decimal | None = None
    """The rate of input tokens that were read from a cache. If None, `input_usd` applies."""
    cache_write_usd: Decimal | None = None
    """The rate of input tokens that were written to a cache. If None, `input_usd` applies."""
    reasoning_usd: Decimal | None = None
    """The rate of output tokens that were used for reasoning. If None, `output_usd` applies."""

    def cost(self, usage: TokenUsage | None) -> Decimal | None:
        """Return the cost of a response; None if the token counts are inconsistent or too large.

        If the token counts are unknown, the result is zero if all rates are zero, and otherwise
        None.
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
    """All prices of a project."""

    def __init__(self, prices: Iterable[ModelPrice] = ()) -> None:
        """Index the prices by model and provider."""
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

        If several prices match, the most specific one is used. A full model name precedes a prefix,
        and a longer prefix precedes a shorter one. Then, a price for the provider precedes a price
        for all providers.

        Args:
            usage: The token counts of the response; None if they are unknown.
            models: The names of the model. The first name with a price is used.
            provider: The model's provider; None if it is unknown.
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
"""The `valid_from` of prices that apply to all dates."""


_Usd = TypeVar("_Usd", Decimal, float)


def known_total(cost: _Usd, unpriced_calls: int) -> _Usd | None:
    """Return a sum of costs; None if the sum is zero and the cost of some calls is unknown."""
    return None if unpriced_calls and not cost else cost


def is_unpriced(status: str, usage: tuple[int | None, int | None], cost: object) -> bool:
    """Return whether the cost of a model call is unknown.

    A model call without an answer and without tokens costs nothing, so its cost is known.

    Args:
        status: The status of the model call.
        usage: The input and output tokens of the model call.
        cost: The recorded cost; None if there is none.
    """
    return cost is None and (status == Status.SUCCEEDED or any(usage))


def token_count(value: object) -> int | None:
    """Return `value` if it is a valid token count; otherwise None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < MOST_TOKENS else None


def usd(value: object) -> Decimal | None:
    """Return a value as an amount in US dollars; None if it is no valid amount."""
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
    at: datetime | None = None,
    tier: str | None = None,
    is_provider_chosen: bool = False,
) -> Decimal | None:
    """Return the cost of a response in US dollars, by the price list of `genai-prices`.

    Args:
        usage: The token counts of the response.
        model: The name of the model that responded.
        provider: The model's provider; None: it is derived from the model's name.
        at: The time of the request, because prices change. The default is now.
        tier: The provider's service tier; None: the standard tier.
        is_provider_chosen: Whether the user chose the provider's name. If the list does not have
            such a provider, its models of `_MAKERS` cost what their makers charge.

    Returns:
        The cost; None if the list has no price for the model, or the tier's price is unknown.
    """
    if max(len(model), len(provider or "")) > _MAX_NAME:
        return None
    match = _find(model, provider)
    if match is None and provider is not None and is_provider_chosen:
        match = _of_maker(model, provider)
    if match is None:
        return None
    listed, seller = match
    factor = _tier_factor(tier, seller.id, listed.id)
    if factor is None:
        return None
    try:
        prices = listed.get_prices(at or utc_now())
        total = text_price(vars(prices), usage)
        if total is None:
            total = listed.calc_price(_usage(usage), seller, genai_request_timestamp=at).total_price
        return round(total * factor, USD_PLACES) if any(vars(prices).values()) else None
    except (ValueError, ArithmeticError):
        return None  # the counts are inconsistent, or too large


_TIERED_SELLERS = ("openai", "azure")
_TIER_FACTORS = {"flex": Decimal("0.5"), "batch": Decimal("0.5")}
_PRIORITY_FACTORS = {
    "gpt-5.5": Decimal("2.5"),
    "gpt-5-mini": Decimal("1.8"),
    "gpt-5": Decimal(2),
    "gpt-4.1-nano": Decimal(2),
    "gpt-4.1": Decimal("1.75"),
    "gpt-4o-mini": Decimal(5) / 3,
    "gpt-4o-2024-05-13": Decimal("1.75"),
    "gpt-4o": Decimal("1.7"),
    "o3": Decimal("1.75"),
    "o4-mini": Decimal(20) / 11,
}
"""What OpenAI charges for its priority tier, as a multiple of the standard price, by the beginning
of the model's name. Source: OpenAI's page "Priority Processing for API Customers", and for GPT-5.5
its pricing page, both as of June 2026."""


def _tier_factor(tier: str | None, seller: str, model: str) -> Decimal | None:
    """Return the multiple of the standard price for a service tier; None if it is unknown.

    The price list has no tiers. Only OpenAI's tiers change the price of a single response.
    """
    if tier is None or seller not in _TIERED_SELLERS:
        return Decimal(1)
    tier = tier.lower()
    if tier == "priority":
        found = (each for each in _PRIORITY_FACTORS if model.startswith(each))
        return _PRIORITY_FACTORS.get(next(found, ""))
    return _TIER_FACTORS.get(tier, Decimal(1))


def text_price(prices: Mapping[str, Any], usage: TokenUsage) -> Decimal | None:
    """Return the price of tokens, ten times as fast as `calc_price` of `genai-prices`.

    The rates are those of input, output, cache read, cache write (for an hour, too), reasoning and
    audio. Tokens whose own rate is missing have the rate of their whole. Returns None if the model
    also has a price per request.
    """
    if prices.get("requests_kcount") is not None:
        return None
    total, fresh = Decimal(0), usage.input
    has_hourly = prices.get("cache_write_1h_mtok") is not None
    hourly = min(usage.cache_written_hour, usage.cache_written) if has_hourly else 0
    for name, count in (
        ("cache_read_mtok", usage.cache_read),
        ("cache_write_1h_mtok", hourly),
        ("cache_write_mtok", usage.cache_written - hourly),
        ("input_audio_mtok", usage.audio_input),
    ):
        if prices.get(name) is not None:
            total += _price_at(prices[name], usage.input) * count
            fresh -= count
    if prices.get("input_mtok") is not None:
        if fresh < 0:
            raise ValueError("a model call cannot have more cached tokens than input tokens")
        total += _price_at(prices["input_mtok"], usage.input) * fresh
    visible = usage.output
    if prices.get("output_reasoning_mtok") is not None:
        total += _price_at(prices["output_reasoning_mtok"], usage.input) * usage.reasoning
        visible -= usage.reasoning
    if prices.get("output_audio_mtok") is not None:
        total += _price_at(prices["output_audio_mtok"], usage.input) * usage.audio_output
        visible -= usage.audio_output
    if prices.get("output_mtok") is not None:
        if visible < 0:
            raise ValueError("a model call cannot have more reasoning tokens than output tokens")
        total += _price_at(prices["output_mtok"], usage.input) * visible
    return total / 1_000_000


def _price_at(price: Any, tokens: int) -> Decimal:
    """Return the rate for a request with this number of input tokens.

    Some models have tiers: above a number of input tokens, another rate applies.
    """
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


@lru_cache(maxsize=64)
def provider_at(base_url: str) -> str | None:
    """Return the provider whose API has this URL, by the price list; None if the list has none.

    A proxy or a server of one's own has no provider: its models are priced by their names.
    """
    try:
        return _price_list().find_provider(None, None, base_url).id
    except LookupError:
        return None


@lru_cache(maxsize=1024)
def _find(model: str, provider: str | None) -> tuple[ModelInfo, Provider] | None:
    listed = _price_list()
    for name, seller_name in dict.fromkeys(spellings(model, provider)):
        try:
            seller, match = listed.find_provider_model(name, None, seller_name, None)
        except LookupError:
            continue
        return match, seller
    return None


def _of_maker(model: str, provider: str) -> tuple[ModelInfo, Provider] | None:
    """Return a model of one of `_MAKERS` that a provider with a chosen name resells."""
    name = _OF_SDK.sub("", provider.lower())
    is_runtime = name in _OWN_COMPUTERS and name != "local"  # a name that users choose
    if is_runtime or any(each.id == provider_name(provider) for each in _price_list().providers):
        return None
    match = _find(model, None)
    return match if match is not None and match[1].id in _MAKERS else None


def _price_list() -> DataSnapshot:
    # Imported when first needed, because the library takes a third of a second to load.
    from genai_prices.data import providers
    from genai_prices.data_snapshot import DataSnapshot

    # Not the library's own snapshot, whose cache of names grows without limit.
    return DataSnapshot(providers=providers, from_auto_update=False)
