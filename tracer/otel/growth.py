"""Growing the forest: what several spans tell of is told once, and hidden agents are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal

from tracer.otel.dialects.reading import WRAPPER, Reading, Role
from tracer.otel.forest import NODES, Above, Forest, followed, set_places
from tracer.otel.texts import Canonical


def grow(forest: Forest) -> bool:
    """Simplify a planted forest, and set the places of its spans.

    Returns:
        Whether it is a plain one: there was nothing to simplify, nor will there be because of a
        span that comes, unless that is within its like, or what may be an agent.
    """
    set_places(forest)
    are_within = _any_within_its_like(forest)
    may_find = not FRAMEWORKS.isdisjoint([reading.role for reading in forest.readings.values()])
    for simplify, is_needed in (
        (_merge_repeated_tools, are_within),
        (_merge_nested_models, are_within),
        (_find_agents, may_find),
        (_merge_agents, are_within or may_find),
    ):
        if is_needed and simplify(forest):
            set_places(forest)
    readings = forest.readings
    forest.telling = [each for each in forest.order if readings[each].tells_whose]
    return not are_within and not may_find


def _any_within_its_like(forest: Forest) -> bool:
    """Return whether the place of any span is a span of its role. In most traces none is."""
    readings = forest.readings
    return any(
        readings[span_id].role is readings[at].role
        for span_id, (above, at) in forest.places.items()
        if above is Above.SPAN
    )


def _directly_within_its_like(forest: Forest, role: Role) -> list[bytes]:
    """Return the spans of a role, by time, whose place is a span of that role too."""
    readings, places = forest.readings, forest.places
    return [
        span_id
        for span_id in forest.order
        if readings[span_id].role is role
        and places[span_id][0] is Above.SPAN
        and readings[places[span_id][1]].role is role
    ]


def _merge_repeated_tools(forest: Forest) -> bool:
    """A tool call that two instrumentations tell of is one: the outer one stays."""
    merged: dict[bytes, bytes] = {}
    given = Canonical()  # one call may have many within it
    for span_id in _directly_within_its_like(forest, Role.TOOL):
        outer = followed(merged, forest.places[span_id][1])
        inner, reading = forest.readings[span_id], forest.readings[outer]
        named_alike = inner.name == reading.name and inner.tool_type in (None, "MCP")
        repeats = inner.is_mcp or (
            inner.arguments is not None and given[inner.arguments] == given[reading.arguments]
        )
        if (named_alike and repeats) or (inner.is_mcp and inner.name is None):
            forest.readings[outer] = reading._replace(
                tool_type="MCP" if inner.is_mcp else reading.tool_type,
                arguments=reading.arguments if reading.arguments is not None else inner.arguments,
                result=reading.result if reading.result is not None else inner.result,
                call_id=reading.call_id or inner.call_id,
                tool_failed=reading.tool_failed or inner.tool_failed,
            )
            merged[span_id] = outer
            _merge(forest, outer, span_id)
    return bool(merged)


def _merge_nested_models(forest: Forest) -> bool:
    """Of models within a model, tokens count once: the outermost span that has them."""
    within: dict[bytes, list[bytes]] = {}
    for span_id in _directly_within_its_like(forest, Role.MODEL):
        within.setdefault(forest.places[span_id][1], []).append(span_id)
    inner = {span_id for spans in within.values() for span_id in spans}
    tops = [each for each in within if each not in inner]
    for outer in sorted(tops, key=lambda each: forest.spans[each].order):
        _merge_models_into(forest, outer, within)
    return bool(within)


def _merge_models_into(forest: Forest, outer: bytes, within: dict[bytes, list[bytes]]) -> None:
    below: list[bytes] = []
    waiting = list(within[outer])
    while waiting:
        span_id = waiting.pop()
        below.append(span_id)
        waiting += within.get(span_id, ())
    below.sort(key=lambda each: forest.spans[each].order)
    counted = _outermost(forest, outer, within, _has_counts)
    costly = _outermost(forest, outer, within, _has_cost)
    reading = forest.readings[outer]
    readings = [forest.readings[each] for each in below]
    counts = [forest.readings[each] for each in counted]
    costs = [forest.readings[each].cost_usd or Decimal(0) for each in costly]
    latest = [*reversed(readings)]
    forest.readings[outer] = reading._replace(
        requested_model=reading.requested_model or _first(r.requested_model for r in readings),
        model=reading.model or _first(r.model for r in latest),
        provider=reading.provider or _first(r.provider for r in readings),
        request=reading.request or _first(r.request for r in readings),
        messages=reading.messages or _first(r.messages for r in readings),
        answer=reading.answer or _first(r.answer for r in latest),
        chosen=reading.chosen or next((r.chosen for r in latest if r.chosen), ()),
        input_tokens=_sum(r.input_tokens for r in counts),
        output_tokens=_sum(r.output_tokens for r in counts),
        cache_read_tokens=_sum(r.cache_read_tokens for r in counts),
        cache_written_tokens=_sum(r.cache_written_tokens for r in counts),
        cost_usd=sum(costs, Decimal(0)) if costs else None,
    )
    for each in below:
        _merge(forest, outer, each)


def _outermost(
    forest: Forest,
    outer: bytes,
    within: dict[bytes, list[bytes]],
    has: Callable[[Reading], bool],
) -> list[bytes]:
    """Return the spans that have something, and are within none that has it too."""
    found = []
    waiting = [outer]
    while waiting:
        span_id = waiting.pop()
        if has(forest.readings[span_id]):
            found.append(span_id)
        else:
            waiting += within.get(span_id, ())
    return found


def _has_counts(reading: Reading) -> bool:
    return reading.input_tokens is not None or reading.output_tokens is not None


def _has_cost(reading: Reading) -> bool:
    return reading.cost_usd is not None


def _first(texts: Iterable[str | None]) -> str | None:
    return next((each for each in texts if each), None)


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if known else None


def _find_agents(forest: Forest) -> bool:
    """Make agents of the wrappers that a tool opened and that work as agents do."""
    found = False
    outermost = _outermost_wrappers(forest)
    opened: dict[bytes, set[Role]] = {}
    for span_id in forest.order:
        above, tool = forest.places[span_id]
        if above is not Above.SPAN or forest.role(tool) is not Role.TOOL:
            continue
        parent = forest.parents[span_id]
        wrapper = outermost.get(parent) if parent is not None else None
        if forest.role(span_id) in NODES and wrapper is not None:
            opened.setdefault(wrapper, set()).add(forest.role(span_id))
    empty = _empty_agents(forest) if opened else {}
    for span_id, roles in opened.items():
        needed = {Role.MODEL} if forest.role(span_id) is Role.WORKFLOW else {Role.MODEL, Role.TOOL}
        if Role.AGENT not in roles and needed <= roles:
            forest.readings[span_id] = forest.readings[span_id]._replace(role=Role.AGENT)
            beside = empty.get((forest.parents[span_id], forest.readings[span_id].name), [])
            if beside and forest.spans[beside[-1]].start <= forest.spans[span_id].start:
                # OpenLLMetry only names LangGraph's agents in a span beside that of their work.
                _merge(forest, span_id, beside.pop())
            found = True
    return found


def _empty_agents(forest: Forest) -> dict[tuple[bytes | None, str | None], list[bytes]]:
    """Return by parent and name the agents that nothing hangs under, latest first."""
    holding = set(forest.parents.values())
    found: dict[tuple[bytes | None, str | None], list[bytes]] = {}
    for span_id in reversed(forest.having(Role.AGENT)):
        if span_id not in holding:
            key = forest.parents[span_id], forest.readings[span_id].name
            found.setdefault(key, []).append(span_id)
    return found


FRAMEWORKS = frozenset((Role.WORKFLOW, Role.CHAIN))
"""What may turn out to be an agent."""


def _outermost_wrappers(forest: Forest) -> dict[bytes, bytes | None]:
    """Return for each wrapper the outermost one of an agent framework between it and its place."""
    found: dict[bytes, bytes | None] = {}
    for span_id in forest.order:
        way = []
        at: bytes | None = span_id
        while at is not None and at not in found and forest.role(at) not in NODES:
            way.append(at)
            at = forest.parents[at]
        outermost = found.get(at) if at is not None else None
        for each in reversed(way):
            if outermost is None and forest.role(each) in FRAMEWORKS:
                outermost = each
            found[each] = outermost
    return found


def _merge_agents(forest: Forest) -> bool:
    """An agent that does nothing but hold an agent of the same name is told of twice."""
    holders = {forest.places[each][1] for each in _directly_within_its_like(forest, Role.AGENT)}
    if not holders:
        return False
    below: dict[bytes, list[bytes]] = {}
    for span_id in forest.order:
        above, outer = forest.places[span_id]
        if above is Above.SPAN and outer in holders and forest.role(span_id) in NODES:
            below.setdefault(outer, []).append(span_id)
    merged: dict[bytes, bytes] = {}
    for outer in reversed(forest.having(Role.AGENT)):
        inner = below.get(outer, [])
        if len(inner) != 1:
            continue
        held = followed(merged, inner[0])
        reading = forest.readings[held]
        if reading.role is Role.AGENT and reading.name == forest.readings[outer].name:
            merged[outer] = held
            _merge(forest, held, outer)
    return bool(merged)


def _merge(forest: Forest, into: bytes, span_id: bytes) -> None:
    """Let one span speak for another, and say what only that one says."""
    reading, merged = forest.readings[into], forest.readings[span_id]
    forest.readings[into] = reading._replace(
        request=reading.request or merged.request,
        answer=reading.answer or merged.answer,
        conversation=reading.conversation or merged.conversation,
        subject=reading.subject or merged.subject,
    )
    forest.merged.setdefault(into, []).append(span_id)
    forest.readings[span_id] = WRAPPER
