"""Costs of model calls, from the price list; None if the list has no price."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from tracer.records.prices import (
    ALWAYS,
    ModelPrice,
    OwnPrices,
    TokenUsage,
    cost_of,
    provider_at,
    text_price,
)

THEN = datetime(2026, 1, 1, tzinfo=UTC)
A_CENT = TokenUsage(1000, 10)


def test_cost_of_a_known_model_is_computed_from_the_price_list() -> None:
    assert cost_of(A_CENT, "gpt-5-mini", provider="openai", at=THEN) == Decimal("0.00027")
    assert cost_of(A_CENT, "gpt-5-mini", at=THEN) == Decimal("0.00027")


@pytest.mark.parametrize(
    ("base_url", "provider"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://api.groq.com/openai/v1/", "groq"),
        ("https://ours.openai.azure.com/openai/v1", "azure"),
        ("http://127.0.0.1:4000/v1", None),
        ("", None),
    ],
)
def test_provider_is_found_by_the_address_of_its_api(base_url: str, provider: str | None) -> None:
    assert provider_at(base_url) == provider


def test_cost_of_an_unknown_model_is_none() -> None:
    assert cost_of(A_CENT, "my-own-model", provider="openai", at=THEN) is None
    assert cost_of(A_CENT, "gpt-5-mini", provider="ollama", at=THEN) is None
    assert cost_of(A_CENT, "gpt-5-mini" * 100, at=THEN) is None


@pytest.mark.parametrize(
    ("provider", "model", "usd"),
    [
        ("acme", "gpt-5-mini", Decimal("0.00027")),
        ("local.chat", "gpt-5-mini", Decimal("0.00027")),
        ("acme", "llama-3.3-70b-versatile", None),
        ("acme", "my-own-model", None),
        ("ollama.chat", "gpt-5-mini", None),
        ("groq", "gpt-5-mini", None),
    ],
)
def test_provider_with_a_chosen_name_resells_the_models_of_makers(
    provider: str, model: str, usd: Decimal | None
) -> None:
    cost = partial(cost_of, A_CENT, model, provider=provider, at=THEN)

    assert cost(is_provider_chosen=True) == usd
    assert cost() is None


def test_cached_tokens_have_their_own_prices() -> None:
    model, provider = "claude-sonnet-4-5", "anthropic"

    def cost(read: int, written: int) -> Decimal:
        usage = TokenUsage(1000, 0, read, written)
        found = cost_of(usage, model, provider=provider, at=THEN)
        assert found is not None
        return found

    assert cost(1000, 0) < cost(0, 0) < cost(0, 1000)
    assert cost(400, 600) == cost(400, 0) + cost(0, 600) - cost(0, 0)


def test_reasoning_tokens_have_their_own_price() -> None:
    usage = TokenUsage(1000, 100, reasoning=60)
    # $2 a million of input, $8 of output, $3 of reasoning.
    by_hand = (Decimal(2) * 1000 + Decimal(8) * 40 + Decimal(3) * 60) / 1_000_000
    assert (
        cost_of(usage, "perplexity/sonar-deep-research", provider="openrouter", at=THEN) == by_hand
    )


REQUEST = TokenUsage(
    input=100_000, output=20_000, cache_read=60_000, cache_written=10_000, reasoning=15_000
)


@pytest.mark.parametrize(
    ("model", "provider", "by_hand"),
    [
        # $1.25 of input, $0.125 of cache read; no price of cache writes; $10 of output.
        ("gpt-5", "openai", "0.04 * 1.25 + 0.06 * 0.125 + 0.02 * 10"),
        ("gpt-5", "azure.ai.openai", "0.04 * 1.25 + 0.06 * 0.125 + 0.02 * 10"),
        ("o3", "openai", "0.04 * 2 + 0.06 * 0.5 + 0.02 * 8"),
        # $3 of input, $0.30 of cache read, $3.75 of cache write, $15 of output.
        ("claude-sonnet-4-5", "anthropic", "0.03 * 3 + 0.06 * 0.3 + 0.01 * 3.75 + 0.02 * 15"),
        (
            "anthropic.claude-sonnet-4-5-20250929-v1:0",
            "aws.bedrock",
            "0.03 * 3.3 + 0.06 * 0.33 + 0.01 * 4.125 + 0.02 * 16.5",
        ),
        ("gemini-2.5-pro", "gcp.gemini", "0.04 * 1.25 + 0.06 * 0.125 + 0.02 * 10"),
        ("gemini-2.5-pro", "gcp.vertex_ai", "0.04 * 1.25 + 0.06 * 0.125 + 0.02 * 10"),
        ("gemini-2.5-flash", "gcp.gen_ai", "0.04 * 0.3 + 0.06 * 0.03 + 0.02 * 2.5"),
        ("grok-4", "x_ai", "0.04 * 3 + 0.06 * 0.75 + 0.02 * 15"),
        ("kimi-k2-0905-preview", "moonshot_ai", "0.04 * 0.6 + 0.06 * 0.15 + 0.02 * 2.5"),
        ("openai/gpt-oss-120b", "groq", "0.04 * 0.15 + 0.06 * 0.075 + 0.02 * 0.6"),
        ("mistral-large-latest", "mistral_ai", "0.1 * 2 + 0.02 * 6"),
    ],
)
def test_cost_with_cached_and_reasoning_tokens_equals_a_sum_by_hand(
    model: str, provider: str, by_hand: str
) -> None:
    """The numbers are millions of tokens times dollars per million."""
    has_write_price = "claude" in model
    usage = REQUEST if has_write_price else REQUEST._replace(cache_written=0)
    expected = sum(
        (Decimal(tokens) * Decimal(rate))
        for tokens, _, rate in (term.partition(" * ") for term in by_hand.split(" + "))
    )

    assert cost_of(usage, model, provider=provider, at=THEN) == expected


def test_cost_is_none_if_more_tokens_are_cached_than_sent() -> None:
    costs = [
        cost_of(usage, "claude-sonnet-4-5", provider="anthropic", at=THEN)
        for usage in (TokenUsage(10, 0, 11), TokenUsage(10, 0, 0, 11), TokenUsage(10, 0, 6, 6))
    ]
    assert costs == [None] * 3


def test_costs_equal_those_that_the_genai_prices_library_computes() -> None:
    from genai_prices import Usage
    from genai_prices.data import providers

    usages = [
        TokenUsage(1000, 10),
        TokenUsage(250_000, 10, 90_000, 30_000),
        TokenUsage(5, 1, 4, 4),
        TokenUsage(1000, 100, reasoning=60),
    ]
    for provider, model in ((each, model) for each in providers for model in each.models):
        for usage in usages:
            counts = Usage(
                input_tokens=usage.input,
                output_tokens=usage.output,
                cache_read_tokens=usage.cache_read,
                cache_write_tokens=usage.cache_written,
                output_reasoning_tokens=usage.reasoning,
            )
            try:
                price = model.calc_price(counts, provider, genai_request_timestamp=THEN).total_price
            except ValueError:
                with pytest.raises(ValueError, match="more cached tokens"):
                    text_price(vars(model.get_prices(THEN)), usage)
                continue
            assert text_price(vars(model.get_prices(THEN)), usage) in (price, None), model.id


def test_huge_token_counts_raise_no_error() -> None:
    for usage in (TokenUsage(2**63 - 1, 2**63 - 1), TokenUsage(10**40, 10**40), TokenUsage(0, 0)):
        cost_of(usage, "o1-pro", at=THEN)


# It takes a new process: in this one, another test may have imported the list.
# `tracer.records.prices` is the only module that imports it.
@pytest.mark.parametrize(
    "modules",
    [
        "tracer.records.prices",
        pytest.param("api.main, tracer.otel.projection", marks=pytest.mark.thorough),
    ],
)
def test_the_price_list_is_not_read_on_import(modules: str) -> None:
    script = f"import sys, {modules}; print('genai_prices' in sys.modules)"

    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert process.stdout == "False\n", process.stderr


def price(model: str, input_usd: str, output_usd: str = "0", **more: Any) -> ModelPrice:
    fields = {"provider": None, "valid_from": ALWAYS} | more
    return ModelPrice(model, input_usd=Decimal(input_usd), output_usd=Decimal(output_usd), **fields)


MILLION = TokenUsage(1_000_000, 1_000_000)


def cost(prices: list[ModelPrice], *models: str, at: datetime = THEN, **more: Any) -> object:
    provider = more.get("provider")
    return OwnPrices(prices).cost_of(more.get("usage", MILLION), models, provider, at)


def test_own_price_of_every_kind_of_token_is_applied() -> None:
    own = price(
        "llama",
        "2",
        "10",
        cache_read_usd=Decimal("0.5"),
        cache_write_usd=Decimal(3),
        reasoning_usd=Decimal(4),
    )
    # 30,000 fresh, 60,000 read and 10,000 written; 5,000 visible and 15,000 of reasoning.
    by_hand = Decimal("0.03") * 2 + Decimal("0.06") * Decimal("0.5") + Decimal("0.01") * 3
    by_hand += Decimal("0.005") * 10 + Decimal("0.015") * 4
    assert cost([own], "llama", usage=REQUEST) == by_hand == Decimal("0.23")


def test_kinds_of_tokens_without_a_rate_cost_as_much_as_input_or_output() -> None:
    assert cost([price("llama", "2", "10")], "llama", usage=REQUEST) == Decimal("0.4")


def test_own_price_of_zero_gives_zero_and_no_price_gives_none() -> None:
    assert cost([price("llama", "0")], "llama") == Decimal(0)
    assert cost([price("llama", "0")], "mistral") is None
    assert cost([price("llama", "0")], "llama", usage=None) == Decimal(0)
    assert cost([price("llama", "1")], "llama", usage=None) is None


def test_own_price_holds_from_its_first_day_in_utc() -> None:
    prices = [
        price("m", "1", valid_from=date(2026, 3, 1)),
        price("m", "2", valid_from=date(2026, 4, 1)),
    ]
    east = timezone(timedelta(hours=2))
    found = [
        cost(prices, "m", at=at)
        for at in (
            datetime(2026, 2, 28, 23, 59, 59, tzinfo=UTC),
            datetime(2026, 3, 1, tzinfo=UTC),
            datetime(2026, 4, 1, 1, 59, tzinfo=east),
            datetime(2026, 4, 1, 2, 0, tzinfo=east),
        )
    ]
    assert found == [None, Decimal(1), Decimal(1), Decimal(2)]


def test_most_specific_own_price_is_taken() -> None:
    prices = [
        price("ft:*", "1"),
        price("ft:gpt-4o:*", "2"),
        price("ft:gpt-4o:ward", "3"),
        price("ft:gpt-4o:ward", "4", provider="azure"),
        price("*", "5", provider="vllm"),
    ]
    assert cost(prices, "ft:o3:x") == Decimal(1)
    assert cost(prices, "ft:gpt-4o:x") == Decimal(2)
    assert cost(prices, "ft:gpt-4o:ward") == cost(prices, "ft:gpt-4o:ward", provider="openai")
    assert cost(prices, "ft:gpt-4o:ward", provider="azure") == Decimal(4)
    assert cost(prices, "anything", provider="vllm") == Decimal(5)
    assert cost(prices, "anything", provider="ollama") is None


def test_own_price_of_the_requested_model_applies_if_the_answering_one_has_none() -> None:
    prices = [price("my-deployment", "1"), price("gpt-4o", "2")]
    assert cost(prices, "gpt-4o", "my-deployment") == Decimal(2)
    assert cost(prices, "gpt-4o-2024-08-06", "my-deployment") == Decimal(1)
