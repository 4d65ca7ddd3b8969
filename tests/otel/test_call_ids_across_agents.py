"""Call ids, texts and calls in answers link across agents if only one link is possible."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.otel.made_traces import agent, chat, make_span, outline, projection_of, tool
from tests.otel.projections import Projected
from tracer.otel.projection.agents import BY_TEXT
from tracer.otel.projection.chosen_calls import BY_NAME, ONLY_CHOSEN
from tracer.records import Kind

PLANNER = [
    agent(1, "planner", asked="go", at=(0, 20)),
    chat(2, ("c1", "ask", '{"q":"find"}'), parent=1, at=(0, 1)),
    tool(3, "ask", '{"q":"find"}', "c1", parent=1, at=(1, 12)),
    agent(4, "searcher", asked="find", parent=3, at=(2, 11)),
]
SEARCH = chat(5, ("c2", "grep", '{"p":1}'), tokens=5, parent=4, at=(3, 4))
LINKED = [
    "plan planner",
    "  step planner",
    "    round 1",
    '      call ask {"q":"find"}',
    "        plan searcher",
    "          step searcher",
    "            round 5",
    '              call grep {"p":1}',
]


def grep(call_id: str = "c2", arguments: str | None = '{"p":1}', **more: Any) -> dict[str, Any]:
    return tool(6, more.pop("name", "grep"), arguments, call_id, **{"at": (5, 6)} | more)


def answer(number: int, text: str = "done", **more: Any) -> dict[str, Any]:
    said = json.dumps([{"role": "assistant", "content": text}])
    operation = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": said}
    return make_span(number, "chat m", operation, **more)


def test_tool_call_below_the_root_belongs_to_the_round_that_chose_its_id() -> None:
    run = projection_of(*PLANNER, SEARCH, grep(parent=1))

    assert outline(run) == LINKED


def test_tool_call_with_agents_below_takes_them_along() -> None:
    run = projection_of(*PLANNER, SEARCH, grep(parent=1), agent(7, "reader", parent=6, at=(5, 6)))

    assert outline(run) == [*LINKED, " " * 16 + "plan reader", " " * 18 + "step reader"]


def test_tool_call_without_arguments_is_linked_by_its_id() -> None:
    run = projection_of(*PLANNER, SEARCH, grep(arguments=None, parent=1))

    assert outline(run) == LINKED


def test_round_below_the_root_belongs_to_the_agent_of_the_call_that_it_chose() -> None:
    run = projection_of(*PLANNER, {**SEARCH, "parentSpanId": f"{1:016x}"}, grep(parent=4))

    assert outline(run) == LINKED


CONTRADICTIONS = {
    "two rounds chose the id": [
        SEARCH,
        chat(7, ("c2", "other", "{}"), parent=4, at=(7, 8)),
        grep(parent=1),
    ],
    "two calls carry the id": [SEARCH, grep(parent=1), tool(7, "grep", "{}", "c2", parent=1)],
    "another name": [SEARCH, grep(name="read", parent=1)],
    "other arguments": [SEARCH, grep(arguments='{"p":2}', parent=1)],
    "a round with unknown choices": [
        SEARCH,
        grep(parent=1),
        make_span(7, "chat m", {"gen_ai.operation.name": "chat"}, parent=1, at=(13, 14)),
    ],
    "an open round": [SEARCH, grep(parent=1), chat(7, parent=1, at=(13, None))],
    "before the round": [SEARCH, grep(parent=1, at=(2, 3))],
    "after the agent": [SEARCH, grep(parent=1, at=(13, 14))],
}


@pytest.mark.parametrize("spans", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_call_id_with_contradicting_evidence_does_not_link(spans: list[dict[str, Any]]) -> None:
    run = projection_of(*PLANNER, *spans)

    agents = {
        run.records[Kind.STEP][call["step_id"]]["agent_name"]
        for call in run.records[Kind.TOOL_CALL].values()
        if call["name"] in ("grep", "read") and call["reason"] != "not_reached"
    }
    assert agents == {"planner"}


def test_call_of_another_named_agent_is_not_linked() -> None:
    call = grep(parent=1)
    call["attributes"] += [{"key": "gen_ai.agent.name", "value": {"stringValue": "planner"}}]

    run = projection_of(*PLANNER, SEARCH, call)

    assert '      call grep {"p":1} (inferred)' in outline(run)


def test_call_ids_that_repeat_in_each_agent_do_not_link() -> None:
    """So local models number calls: per conversation."""
    run = projection_of(
        agent(1, "planner", at=(0, 20)),
        chat(2, ("call_0", "grep", '{"p":1}'), parent=1, at=(0, 1)),
        tool(3, "grep", '{"p":1}', "call_0", parent=1, at=(1, 12)),
        agent(4, "searcher", parent=3, at=(2, 11)),
        chat(5, ("call_0", "grep", '{"p":2}'), tokens=5, parent=4, at=(3, 4)),
        tool(6, "grep", '{"p":2}', "call_0", parent=4, at=(5, 6)),
    )

    assert outline(run)[-2:] == ["            round 5", '              call grep {"p":2}']


def test_id_of_the_call_that_opened_an_agent_does_not_move_it_into_this_agent() -> None:
    run = projection_of(
        agent(1, "a", at=(0, 20)),
        answer(2, parent=1, at=(0, 1)),
        tool(3, "ask", "{}", "c", parent=1, at=(4, 12)),
        agent(4, "b", parent=3, at=(1, 11)),
        chat(5, ("c", "ask", "{}"), parent=4, at=(2, 3)),
    )

    assert outline(run)[:2] == ["plan a", "  step a"]


# --- Calls that exist only in an answer ----------------------------------------------------------


def managed(number: int, name: str, asked: str, **more: Any) -> dict[str, Any]:
    return agent(number, name, asked=asked, parent=1, **more)


def calling(*calls: tuple[str, str, str]) -> list[dict[str, Any]]:
    return [agent(1, "planner", at=(0, 20)), chat(2, *calls, parent=1, at=(0, 1))]


def plans_of(run: Projected) -> dict[str, str | None]:
    """Return the argument of the call that opened each plan but the root, by the agent's name."""
    calls = run.records[Kind.TOOL_CALL]
    return {
        plan["agent_name"]: plan["tool_call_id"] and calls[plan["tool_call_id"]]["arguments"]
        for plan_id, plan in run.records[Kind.PLAN].items()
        if plan_id != run.root_plan_id
    }


ASK = ("c1", "ask", '{"q":"find"}')


def test_call_that_exists_only_in_the_answer_becomes_a_record() -> None:
    run = projection_of(
        *calling(ASK),
        managed(3, "searcher", "find", at=(2, 9), failed="503"),
        answer(4, parent=1, at=(10, 11)),
    )

    [call] = run.records[Kind.TOOL_CALL].values()
    [plan] = (p for p in run.records[Kind.PLAN].values() if p["agent_name"] == "searcher")
    assert outline(run)[2:6] == [
        "    round 1",
        '      call ask {"q":"find"} failed (inferred)',
        "        plan searcher failed (inferred)",
        "          step searcher failed",
    ]
    assert (call["provider_call_id"], call["inferred_from"]) == ("c1", ONLY_CHOSEN)
    assert (call["error_message"], plan["inferred_from"]) == ("503", BY_TEXT)


def test_call_of_a_managed_agent_is_found_by_its_name_within_its_prompt() -> None:
    run = projection_of(
        *calling(("c1", "searcher", '{"task":"find"}'), ("c2", "reader", '{"task":"find"}')),
        managed(3, "searcher", "You were given a task:\nfind\n---", at=(2, 9)),
        managed(4, "reader", "You were given a task:\nfind\n---", at=(2, 9)),
    )

    assert plans_of(run) == {"searcher": '{"task":"find"}', "reader": '{"task":"find"}'}
    assert {plan["inferred_from"] for plan in run.records[Kind.PLAN].values()} == {None, BY_NAME}


NOT_ONLY_CHOSEN = {
    "two equal calls": [
        *calling(ASK, ("c2", *ASK[1:])),
        managed(3, "searcher", "find", at=(2, 9)),
    ],
    "one call, two agents": [
        *calling(ASK),
        managed(3, "searcher", "find", at=(2, 5)),
        managed(4, "searcher", "find", at=(6, 9)),
    ],
    "after the next round": [
        *calling(ASK),
        answer(4, parent=1, at=(2, 3)),
        managed(3, "searcher", "find", at=(4, 9)),
    ],
    "ended after the next round began": [
        *calling(ASK),
        answer(4, parent=1, at=(5, 6)),
        managed(3, "searcher", "find", at=(2, 9)),
    ],
    "part of an argument": [*calling(ASK), managed(3, "searcher", "find it", at=(2, 9))],
    "executed under its name": [
        *calling(ASK),
        tool(5, "ask", '{"q":"find"}', parent=1, at=(1, 2)),
        managed(3, "searcher", "find", at=(3, 9)),
    ],
}


@pytest.mark.parametrize("spans", NOT_ONLY_CHOSEN.values(), ids=NOT_ONLY_CHOSEN.keys())
def test_call_of_an_answer_is_not_linked_if_it_is_ambiguous(spans: list[dict[str, Any]]) -> None:
    assert set(plans_of(projection_of(*spans)).values()) == {None}


def test_record_of_a_call_keeps_its_id_when_the_agent_that_it_opened_arrives() -> None:
    before = projection_of(*calling(ASK))
    after = projection_of(*calling(ASK), managed(3, "searcher", "find", at=(2, 9)))

    assert [*before.records[Kind.TOOL_CALL]] == [*after.records[Kind.TOOL_CALL]]


# --- Text across agents --------------------------------------------------------------------------


def test_agent_below_the_wrong_agent_is_linked_by_its_request() -> None:
    run = projection_of(
        agent(1, "root", at=(0, 20)),
        agent(2, "a", parent=1, at=(0, 10)),
        agent(3, "b", parent=1, at=(0, 10)),
        tool(4, "ask", '{"q":"find"}', parent=2, at=(1, 9)),
        agent(5, "c", asked="find", parent=3, at=(2, 8)),
    )

    assert plans_of(run) == {"a": None, "b": None, "c": '{"q":"find"}'}


def test_agent_is_linked_by_text_to_the_call_that_opened_nothing() -> None:
    run = projection_of(
        agent(1, "root", at=(0, 20)),
        tool(2, "ask", '{"q":"find","n":1}', parent=1, at=(1, 9)),
        tool(3, "ask", '{"q":"find","n":2}', parent=1, at=(1, 9)),
        agent(4, "a", asked="find", parent=2, at=(2, 8)),
        agent(5, "b", asked="find", parent=1, at=(2, 8)),
    )

    assert plans_of(run) == {"a": '{"q":"find","n":1}', "b": '{"q":"find","n":2}'}
