"""Find token counts outside of model calls: of agents without model calls, and of unread spans."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tracer.otel.dialects.run_spans import SlimSpan
from tracer.otel.dialects.span_facts import Role, SpanFacts, count

_TOKENS = re.compile(r"(?:^|[._])(?:input|output|prompt|completion|total)_?tokens$", re.IGNORECASE)
"""The ends of the names of attributes with token counts, in any convention."""


@dataclass(slots=True)
class OtherUsage:
    """The spans whose token counts belong to no model call of the run."""

    agents: list[SlimSpan] = field(default_factory=list)
    """Agents with token counts, without model calls below them, sorted. If agents with token counts
    are nested, only the outermost one counts: its usage includes that of the others."""
    unread: list[SlimSpan] = field(default_factory=list)
    """Spans with token counts that no rule reads, sorted."""


def find_usage(spans: list[SlimSpan]) -> OtherUsage:
    """Return the spans with token counts that are no model calls and contain none.

    Args:
        spans: All spans of a run, sorted. `build_tree` must have been applied to them.
    """
    suspects = [
        span
        for span in spans
        if (span.facts.role is Role.AGENT and has_usage(span.facts))
        or (span.facts.role in _WRAPPERS and _has_tokens(span))
    ]
    found = OtherUsage()
    if not suspects:
        return found
    around_models = _ancestors([span for span in spans if span.facts.role is Role.MODEL])
    counted: set[SlimSpan] = set()
    for span in suspects:
        if span in around_models or span.merged_into is not None:
            continue
        above = span.parent
        while above is not None and above not in counted and above.facts.role is not Role.MODEL:
            above = above.parent
        if above is None:
            counted.add(span)
            (found.agents if span.facts.role is Role.AGENT else found.unread).append(span)
    return found


_WRAPPERS = (Role.WRAPPER, Role.WORKFLOW, Role.CHAIN)


def _ancestors(spans: list[SlimSpan]) -> set[SlimSpan]:
    found: set[SlimSpan] = set()
    for span in spans:
        above = span.parent
        while above is not None and above not in found:
            found.add(above)
            above = above.parent
    return found


def has_usage(facts: SpanFacts) -> bool:
    """Return whether a span has token counts, or a cost above zero."""
    return bool(facts.input_tokens or facts.output_tokens or facts.cost_usd)


def _has_tokens(span: SlimSpan) -> bool:
    return any(
        "okens" in name and _TOKENS.search(name) is not None and bool(count(value))
        for name, value in span.attributes.items()
    )
