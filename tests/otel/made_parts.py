"""Traces made by chance, in parts: any order, any links between spans, open and ended versions."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.otel.made_traces import agent, chat, make_span, pairs, spans_from, tool
from tracer.records.spans import Span

_TEXT = st.sampled_from(["ask", "tell"])
_MORE = st.fixed_dictionaries(
    {},
    optional={
        "gen_ai.conversation.id": _TEXT,
        "user.id": _TEXT,
        "gen_ai.agent.name": _TEXT,
        "gen_ai.tool.call.result": st.just("[masked: api_key]"),
    },
)
_ROLES = ("agent", "chat", "tool", "wrapper"), ("chat", "tool"), ("tool", "tool", "tool", "agent")


def workflow(number: int, name: str, **more: Any) -> dict[str, Any]:
    return make_span(number, name, {"gen_ai.operation.name": "invoke_workflow"}, **more)


@st.composite
def parts_of_a_made_trace(draw: st.DrawFn) -> list[list[Span]]:
    """Spans that hang under each other in any way, in any order, some of them open at first."""
    count = draw(st.integers(2, 12))
    number = st.integers(1, count)
    roles = [*draw(st.sampled_from(_ROLES)), *draw(st.lists(st.just("workflow"), max_size=1))]
    spans: list[Span] = []
    for each in range(1, count + 1):
        above = draw(st.one_of(st.none(), number, number, st.integers(1, count + 3)))
        start = draw(st.integers(0, 5))
        where: dict[str, Any] = {"parent": above, "at": (start, start + draw(st.integers(0, 6)))}
        role = draw(st.sampled_from(roles))
        for _ in range(draw(st.integers(1, 2))):
            one = _made(draw, role, each, where)
            spans += spans_from({**one, "attributes": one["attributes"] + pairs(draw(_MORE))})
        if draw(st.booleans()):
            spans.append(replace(spans[-1], end=0))
    spans = draw(st.permutations(spans))
    cuts = [0]
    while cuts[-1] < len(spans):
        cuts.append(cuts[-1] + draw(st.sampled_from([1, 1, 1, 2, 4])))
    return [spans[start:end] for start, end in pairwise(cuts)]


def _made(draw: st.DrawFn, role: str, number: int, where: dict[str, Any]) -> dict[str, Any]:
    match role:
        case "agent":
            asked = draw(st.one_of(st.none(), _TEXT))
            return agent(number, draw(_TEXT), asked=asked, **where)
        case "chat":
            chosen = st.tuples(_TEXT, _TEXT, _TEXT.map(json.dumps))
            return chat(number, *draw(st.lists(chosen, max_size=1)), **where)
        case "tool":
            arguments = json.dumps([draw(_TEXT)])
            return tool(number, draw(_TEXT), arguments, draw(_TEXT), **where)
        case "workflow":
            return workflow(number, "w", **where)
    return make_span(number, "wrapper", **where)
