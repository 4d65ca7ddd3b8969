"""Make the token counts of all emitters mean the same: a total includes its parts.

Some emitters count cached, written and reasoning tokens inside the total, others beside it. The
counts of a span often prove which. If they do not, the other spans of the same scope and provider
in the run decide; without any proof, the total is assumed to include its parts, as the GenAI
conventions say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tracer.otel.dialects.run_spans import SlimSpan
from tracer.otel.dialects.span_facts import Role, SpanFacts

_COUNTED = (Role.MODEL, Role.AGENT)


class _Counting(NamedTuple):
    """Whether an emitter counts parts inside the total. None: the counts do not prove it."""

    is_input_whole: bool | None
    is_output_whole: bool | None


def include_parts(spans: Iterable[SlimSpan]) -> None:
    """Add cached, written and reasoning tokens to the totals that do not include them."""
    proofs: dict[tuple[str, str | None], set[_Counting]] = {}
    counted: list[tuple[SlimSpan, _Counting]] = []
    for span in spans:
        facts = span.facts
        if facts.role in _COUNTED and _has_parts(facts):
            counting = _counting(facts)
            counted.append((span, counting))
            proofs.setdefault((span.scope, facts.provider), set()).add(counting)
    for span, own in counted:
        others = proofs[span.scope, span.facts.provider]
        span.facts = _whole(
            span.facts,
            _agreed(own.is_input_whole, {each.is_input_whole for each in others}),
            _agreed(own.is_output_whole, {each.is_output_whole for each in others}),
        )


def _has_parts(facts: SpanFacts) -> bool:
    return bool(facts.cache_read_tokens or facts.cache_written_tokens or facts.reasoning_tokens)


def _agreed(own: bool | None, others: set[bool | None]) -> bool:
    if own is not None:
        return own
    proven = others - {None}
    return proven != {False}


def _counting(facts: SpanFacts) -> _Counting:
    """Return what the counts of a span prove: no part is larger than its whole, and sums match."""
    cached = (facts.cache_read_tokens or 0) + (facts.cache_written_tokens or 0)
    reasoning = facts.reasoning_tokens or 0
    wholes = facts.input_tokens or 0, facts.output_tokens or 0
    fits = [
        _Counting(is_input_whole, is_output_whole)
        for is_input_whole in (True, False)
        for is_output_whole in (True, False)
        if (not is_input_whole or cached <= wholes[0])
        and (not is_output_whole or reasoning <= wholes[1])
    ]
    total = facts.total_tokens
    matching = [
        each
        for each in fits
        if total == sum(wholes) + cached * (not each[0]) + reasoning * (not each[1])
    ]
    left = matching or fits
    inputs, outputs = {each[0] for each in left}, {each[1] for each in left}
    return _Counting(
        inputs.pop() if cached and len(inputs) == 1 else None,
        outputs.pop() if reasoning and len(outputs) == 1 else None,
    )


def _whole(facts: SpanFacts, is_input_whole: bool, is_output_whole: bool) -> SpanFacts:
    cached = (facts.cache_read_tokens or 0) + (facts.cache_written_tokens or 0)
    if not is_input_whole and facts.input_tokens is not None:
        facts = facts._replace(input_tokens=facts.input_tokens + cached)
    if not is_output_whole and facts.output_tokens is not None:
        facts = facts._replace(output_tokens=facts.output_tokens + (facts.reasoning_tokens or 0))
    return facts
