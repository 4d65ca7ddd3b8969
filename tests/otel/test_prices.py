"""The cost of a round comes from its span or, if that has none, from the price list."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tests.otel.captured import by_trace, spans_of
from tests.otel.made_traces import make_span, projection_of, spans_from
from tests.otel.projections import project
from tracer.records import Kind
from tracer.records.spans import STATUS_ERROR

CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "anthropic",
    "gen_ai.request.model": "claude-sonnet-4-5",
    "gen_ai.usage.input_tokens": 1000,
    "gen_ai.usage.output_tokens": 10,
}
PRICE = Decimal("0.00315")


def costs(*spans: dict[str, Any]) -> list[Decimal | None]:
    records = projection_of(*spans).records[Kind.THINK_ACT].values()
    return [fields["cost_usd"] for fields in records]


def test_a_round_is_priced_by_its_tokens_and_the_price_list() -> None:
    assert costs(make_span(1, "chat", CHAT)) == [PRICE]


def test_the_cost_in_a_span_takes_precedence_over_the_price_list() -> None:
    assert costs(make_span(1, "chat", {**CHAT, "operation.cost": 0.5})) == [Decimal("0.5")]
    assert costs(make_span(1, "chat", {**CHAT, "operation.cost": 0.0})) == [Decimal(0)]


def test_a_framework_named_as_provider_is_ignored() -> None:
    assert costs(make_span(1, "chat", {**CHAT, "gen_ai.provider.name": "strands-agents"})) == [
        PRICE
    ]


def test_an_unknown_cost_is_null() -> None:
    changes: list[dict[str, Any]] = [
        {"gen_ai.request.model": "my-own"},
        {"gen_ai.request.model": ""},
        {"gen_ai.provider.name": "ollama"},
        {"gen_ai.usage.output_tokens": "many"},
    ]
    found = [(each, costs(make_span(1, "chat", {**CHAT, **each}))) for each in changes]
    assert [each for each in found if each[1] != [None]] == []


def test_cache_reads_cost_less_and_cache_writes_more() -> None:
    names = [
        ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens"),
        ("gen_ai.usage.details.cache_read_tokens", "gen_ai.usage.details.cache_write_tokens"),
        ("gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.cache_creation_input_tokens"),
    ]
    found = [
        (read, costs(make_span(1, "chat", {**CHAT, read: 500, written: 500})))
        for read, written in names
    ]
    assert [each for each in found if each[1] != [Decimal("0.002175")]] == []


def test_cached_tokens_are_read_from_each_convention() -> None:
    openinference = {
        "openinference.span.kind": "LLM",
        "llm.provider": "anthropic",
        "llm.model_name": "claude-sonnet-4-5",
        "llm.token_count.prompt": 1000,
        "llm.token_count.completion": 10,
        "llm.token_count.prompt_details.cache_read": 500,
        "llm.token_count.prompt_details.cache_write": 500,
    }
    vercel = {
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.model.provider": "anthropic.messages",
        "ai.model.id": "claude-sonnet-4-5",
        "ai.usage.inputTokens": 1000,
        "ai.usage.outputTokens": 10,
        "ai.usage.cachedInputTokens": 500,
        "ai.usage.inputTokenDetails.cacheWriteTokens": 500,
    }
    claude_code = {
        "model": "claude-sonnet-4-5",
        "input_tokens": 0,
        "output_tokens": 10,
        "cache_read_tokens": 500,
        "cache_creation_tokens": 500,
    }

    seen = costs(
        make_span(1, "llm", openinference),
        make_span(2, "ai.generateText.doGenerate", vercel),
        make_span(3, "claude_code.llm_request", claude_code, scope="com.anthropic.claude_code"),
    )

    assert seen == [Decimal("0.002175")] * 3


def test_cost_repeated_by_wrapper_spans_counts_once() -> None:
    inner = {**CHAT, "gen_ai.usage.cost": 0.25}

    assert costs(make_span(1, "chat", CHAT), make_span(2, "chat", CHAT, parent=1)) == [PRICE]
    assert costs(make_span(1, "chat", inner), make_span(2, "chat", inner, parent=1)) == [
        Decimal("0.25")
    ]


def test_costs_of_inner_spans_are_summed_if_the_outer_has_none() -> None:
    inner = {**CHAT, "gen_ai.usage.cost": 0.25}
    spans = (
        make_span(1, "chat", CHAT),
        make_span(2, "chat", inner, parent=1),
        make_span(3, "chat", inner, parent=1),
    )

    assert costs(*spans) == [Decimal("0.5")]


def test_a_failed_round_without_tokens_costs_null() -> None:
    failed = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5-mini"}
    span = {**make_span(1, "chat", failed), "status": {"code": STATUS_ERROR}}

    assert costs(span) == [None]


def test_the_cost_does_not_depend_on_the_order_of_spans() -> None:
    (spans,) = by_trace(spans_of("pydantic-ai-default-single")).values()

    once, again = project(spans), project(reversed(spans))

    def seen(run: Any) -> list[Decimal]:
        return sorted(each["cost_usd"] for each in run.records[Kind.THINK_ACT].values())

    assert seen(once) == seen(again)
    assert min(seen(once)) > 0


def test_round_without_a_start_uses_the_earliest_price() -> None:
    (span,) = spans_from({**make_span(1, "chat", CHAT), "startTimeUnixNano": "0"})

    (fields,) = project([span]).records[Kind.THINK_ACT].values()

    assert fields["cost_usd"] == PRICE
