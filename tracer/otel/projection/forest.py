"""Arrange the spans of a run in a tree of agents, model calls and tool calls.

Wrapper spans are skipped: a span's place in the tree (`SlimSpan.above`) is the nearest agent, model
call or tool call above it. If the chain of parents ends at a span that has not arrived, the id of
this span is stored (`SlimSpan.awaits`). Spans that describe the same work are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal

from tracer.otel.dialects.run_spans import SlimSpan
from tracer.otel.dialects.span_facts import WRAPPER, Role, SpanFacts
from tracer.records.arguments import Canonical

NODES = (Role.AGENT, Role.MODEL, Role.TOOL)
"""Roles of spans that become records."""

_FRAMEWORKS = (Role.WORKFLOW, Role.CHAIN)
"""Roles of wrappers that may turn out to be agents."""


def build_tree(spans: list[SlimSpan]) -> None:
    """Set `above` or `awaits` of each span, merge duplicate spans, and find hidden agents.

    Args:
        spans: All spans of a run, sorted, with parents and facts.
    """
    _set_places(spans)
    if any(span.facts.is_assumed for span in spans) and _correct_assumed_roles(spans):
        _set_places(spans)
    has_repeats = any(
        (above := span.above) is not None and above.facts.role is span.facts.role for span in spans
    )
    has_frameworks = any(span.facts.role in _FRAMEWORKS for span in spans)
    if has_repeats:
        for merge in (_merge_repeated_tools, _merge_nested_models):
            if merge(spans):
                _set_places(spans)
    if has_frameworks and _find_hidden_agents(spans):
        _set_places(spans)
    if (has_repeats or has_frameworks) and _merge_agents(spans):
        _set_places(spans)


def _set_places(spans: Iterable[SlimSpan]) -> None:
    wrappers: set[SlimSpan] = set()  # those whose place is set
    for span in spans:
        parent = span.parent
        if parent is None:
            span.above, span.awaits = None, span.missing_parent
        elif parent.facts.role in NODES:
            span.above, span.awaits = parent, None
        else:
            _climb(parent, wrappers)
            span.above, span.awaits = parent.above, parent.awaits
        if span.facts.role not in NODES:
            wrappers.add(span)


def _climb(wrapper: SlimSpan, done: set[SlimSpan]) -> None:
    """Set `above` or `awaits` of a wrapper and of the wrappers above it.

    Args:
        wrapper: The wrapper.
        done: The wrappers that are already set. The function adds the wrappers that it sets.
    """
    way: list[SlimSpan] = []
    at = wrapper
    while at not in done:
        way.append(at)
        parent = at.parent
        if parent is None:
            at.above, at.awaits = None, at.missing_parent
            break
        if parent.facts.role in NODES:
            at.above, at.awaits = parent, None
            break
        at = parent
    for each in way:
        each.above, each.awaits = at.above, at.awaits
    done.update(way)


def _correct_assumed_roles(spans: list[SlimSpan]) -> bool:
    """Correct the roles of spans whose operation is unknown. Return whether any was corrected.

    A span with a model's name and token counts is no model call if a model call is below it: then
    it is an agent if it has an agent's name. A span with an agent's name is no agent if no work is
    below it, or if the agent above has the same name, which then was only copied.
    """
    roles_below: dict[SlimSpan, set[Role]] = {}
    for span in reversed(spans):
        above = span.above
        while above is not None and span.facts.role in NODES:
            roles = roles_below.setdefault(above, set())
            if span.facts.role in roles:
                break
            roles.add(span.facts.role)
            above = above.above
    has_corrected = False
    for span in spans:
        facts, below = span.facts, roles_below.get(span, set())
        if not facts.is_assumed:
            continue
        if facts.role is Role.MODEL and Role.MODEL in below:
            span.facts = facts._replace(role=Role.AGENT, name=facts.agent)
            has_corrected = True
        if span.facts.role is Role.AGENT:
            above = span.above
            while above is not None and above.facts.role is not Role.AGENT:
                above = above.above
            is_copied = above is not None and above.facts.name == span.facts.name
            if is_copied or not below or not span.facts.name:
                span.facts = span.facts._replace(role=Role.WRAPPER)
                has_corrected = True
    return has_corrected


def represented(span: SlimSpan) -> SlimSpan:
    """Return the span that `span` was merged into; `span` itself if it was not merged."""
    way = []
    while (into := span.merged_into) is not None:
        way.append(span)
        span = into
    for each in way:
        each.merged_into = span
    return span


def _merge(span: SlimSpan, into: SlimSpan) -> None:
    """Merge `span` into `into`. Fields that only `span` has are copied."""
    facts, merged = into.facts, span.facts
    into.facts = facts._replace(
        request=facts.request or merged.request,
        answer=facts.answer or merged.answer,
        conversation=facts.conversation or merged.conversation,
        subject=facts.subject or merged.subject,
    )
    span.merged_into = into
    span.facts = WRAPPER


def _directly_within_its_like(spans: Iterable[SlimSpan], role: Role) -> list[SlimSpan]:
    """Return the spans with this role whose `above` has the same role."""
    return [
        span
        for span in spans
        if span.facts.role is role and span.above is not None and span.above.facts.role is role
    ]


# --- Repeated spans ------------------------------------------------------------------------------


def _merge_repeated_tools(spans: list[SlimSpan]) -> bool:
    """Merge the spans of a tool call that two instrumentations recorded. Keep the outer span.

    Returns:
        Whether any spans were merged.
    """
    nested = _directly_within_its_like(spans, Role.TOOL)
    canonical = Canonical()  # a call may have many calls within it
    has_merged = False
    for span in nested:
        assert span.above is not None
        outer = represented(span.above)
        inner, facts = span.facts, outer.facts
        named_alike = inner.name == facts.name and inner.tool_type in (None, "MCP")
        repeats = inner.is_mcp or (
            inner.arguments is not None and canonical[inner.arguments] == canonical[facts.arguments]
        )
        if (named_alike and repeats) or (inner.is_mcp and inner.name is None):
            outer.facts = facts._replace(
                tool_type="MCP" if inner.is_mcp else facts.tool_type,
                arguments=facts.arguments if facts.arguments is not None else inner.arguments,
                result=facts.result if facts.result is not None else inner.result,
                call_id=facts.call_id or inner.call_id,
                has_failed=facts.has_failed or inner.has_failed,
            )
            _merge(span, outer)
            has_merged = True
    return has_merged


_Children = dict[SlimSpan, list[SlimSpan]]
"""The spans of model calls directly inside the span of each model call."""


def _merge_nested_models(spans: list[SlimSpan]) -> bool:
    """Merge nested model spans into the outermost span, so that tokens are counted once.

    Returns:
        Whether any spans were merged.
    """
    children_of: _Children = {}
    for span in _directly_within_its_like(spans, Role.MODEL):
        assert span.above is not None
        if not _is_later_call(span, span.above):
            children_of.setdefault(span.above, []).append(span)
    inner = {span for children in children_of.values() for span in children}
    for outer in sorted(children_of.keys() - inner, key=lambda span: span.order):
        _merge_models_into(outer, children_of)
    return bool(children_of)


def _is_later_call(span: SlimSpan, outer: SlimSpan) -> bool:
    """Return whether a model call is one of its own, although its parent is another model call.

    It is if it starts after the outer one has ended, and both have counts: some emitters attach the
    next call to the span of the one before.
    """
    is_later = bool(outer.end) and span.start >= outer.end
    return is_later and _has_counts(span.facts) and _has_counts(outer.facts)


def _merge_models_into(outer: SlimSpan, children: _Children) -> None:
    below: list[SlimSpan] = []
    waiting = list(children[outer])
    while waiting:
        span = waiting.pop()
        below.append(span)
        waiting += children.get(span, ())
    below.sort(key=lambda span: span.order)
    facts = outer.facts
    all_facts = [span.facts for span in below]
    latest = [*reversed(all_facts)]
    counts = _outermost(outer, children, _has_counts)
    costs = [each.cost_usd or Decimal(0) for each in _outermost(outer, children, _has_cost)]
    outer.facts = facts._replace(
        requested_model=facts.requested_model or _first(r.requested_model for r in all_facts),
        model=facts.model or _first(r.model for r in latest),
        provider=facts.provider or _first(r.provider for r in all_facts),
        request=facts.request or _first(r.request for r in all_facts),
        messages=facts.messages or _first(r.messages for r in all_facts),
        answer=facts.answer or _first(r.answer for r in latest),
        reasoning=facts.reasoning or _first(r.reasoning for r in latest),
        executed=facts.executed or next((r.executed for r in latest if r.executed), ()),
        chosen=facts.chosen or next((r.chosen for r in latest if r.chosen), ()),
        input_tokens=_sum(r.input_tokens for r in counts),
        output_tokens=_sum(r.output_tokens for r in counts),
        cache_read_tokens=_sum(r.cache_read_tokens for r in counts),
        cache_written_tokens=_sum(r.cache_written_tokens for r in counts),
        reasoning_tokens=_sum(r.reasoning_tokens for r in counts),
        cache_written_hour_tokens=_sum(r.cache_written_hour_tokens for r in counts),
        audio_input_tokens=_sum(r.audio_input_tokens for r in counts),
        audio_output_tokens=_sum(r.audio_output_tokens for r in counts),
        service_tier=facts.service_tier or _first(r.service_tier for r in all_facts),
        parameters=facts.parameters or _first(r.parameters for r in all_facts),
        offered_tools=facts.offered_tools or _first(r.offered_tools for r in all_facts),
        finish_reasons=facts.finish_reasons
        or next((r.finish_reasons for r in latest if r.finish_reasons), ()),
        graph_node=facts.graph_node or _first(r.graph_node for r in all_facts),
        cost_usd=sum(costs, Decimal(0)) if costs else None,
    )
    for span in below:
        _merge(span, outer)


def _outermost(
    outer: SlimSpan, children: _Children, has: Callable[[SpanFacts], bool]
) -> list[SpanFacts]:
    """Return the facts of the outermost spans that satisfy `has`, in a tree of model spans."""
    outermost = []
    waiting = [outer]
    while waiting:
        span = waiting.pop()
        if has(span.facts):
            outermost.append(span.facts)
        else:
            waiting += children.get(span, ())
    return outermost


def _has_counts(facts: SpanFacts) -> bool:
    return facts.input_tokens is not None or facts.output_tokens is not None


def _has_cost(facts: SpanFacts) -> bool:
    return facts.cost_usd is not None


def _first(texts: Iterable[str | None]) -> str | None:
    return next((each for each in texts if each), None)


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if known else None


# --- Hidden agents -------------------------------------------------------------------------------


def _find_hidden_agents(spans: list[SlimSpan]) -> bool:
    """Turn workflows and chains into agents if a tool started them and they work like an agent.

    A chain works like an agent if a model call and a tool call are inside it. For a workflow, a
    model call is sufficient. Neither may contain an agent.

    Returns:
        Whether any span became an agent.
    """
    outermost = _outermost_frameworks(spans)
    roles_within: dict[SlimSpan, set[Role]] = {}
    for span in spans:
        if span.above is None or span.above.facts.role is not Role.TOOL:
            continue
        wrapper = outermost.get(span.parent) if span.parent is not None else None
        if wrapper is not None and span.facts.role in NODES:
            roles_within.setdefault(wrapper, set()).add(span.facts.role)
    empty = _empty_agents(spans) if roles_within else {}
    has_hidden = False
    for wrapper, roles in roles_within.items():
        is_workflow = wrapper.facts.role is Role.WORKFLOW
        needed = {Role.MODEL} if is_workflow else {Role.MODEL, Role.TOOL}
        if Role.AGENT in roles or not needed <= roles:
            continue
        wrapper.facts = wrapper.facts._replace(role=Role.AGENT)
        empty_siblings = empty.get((wrapper.parent, wrapper.facts.name), [])
        if empty_siblings and empty_siblings[-1].start <= wrapper.start:
            # Some emitters name an agent only in an empty span, a sibling of the agent's work.
            _merge(empty_siblings.pop(), wrapper)
        has_hidden = True
    return has_hidden


def _empty_agents(
    spans: list[SlimSpan],
) -> dict[tuple[SlimSpan | None, str | None], list[SlimSpan]]:
    """Return the agents without children, by parent and name. In each list, the latest is first."""
    parents = {span.parent for span in spans}
    agents: dict[tuple[SlimSpan | None, str | None], list[SlimSpan]] = {}
    for span in reversed(spans):
        if span.facts.role is Role.AGENT and span not in parents:
            agents.setdefault((span.parent, span.facts.name), []).append(span)
    return agents


def _outermost_frameworks(spans: Iterable[SlimSpan]) -> dict[SlimSpan, SlimSpan | None]:
    """Return for each wrapper the outermost workflow or chain in its chain of parents.

    The search ends at the nearest agent, model call or tool call above the wrapper.
    """
    outermost_of: dict[SlimSpan, SlimSpan | None] = {}
    for span in spans:
        way = []
        at: SlimSpan | None = span
        while at is not None and at not in outermost_of and at.facts.role not in NODES:
            way.append(at)
            at = at.parent
        outermost = outermost_of.get(at) if at is not None else None
        for each in reversed(way):
            if outermost is None and each.facts.role in _FRAMEWORKS:
                outermost = each
            outermost_of[each] = outermost
    return outermost_of


def _merge_agents(spans: list[SlimSpan]) -> bool:
    """Merge two nested agents of the same name, if the outer one contains nothing else.

    Returns:
        Whether any agents were merged.
    """
    holders = {span.above for span in _directly_within_its_like(spans, Role.AGENT)}
    if not holders:
        return False
    below: dict[SlimSpan, list[SlimSpan]] = {}
    for span in spans:
        if span.above is not None and span.above in holders and span.facts.role in NODES:
            below.setdefault(span.above, []).append(span)
    has_merged = False
    for outer in reversed([span for span in spans if span.facts.role is Role.AGENT]):
        inner = below.get(outer, [])
        if len(inner) != 1:
            continue
        held = represented(inner[0])
        if held.facts.role is Role.AGENT and held.facts.name == outer.facts.name:
            _merge(outer, held)
            has_merged = True
    return has_merged
