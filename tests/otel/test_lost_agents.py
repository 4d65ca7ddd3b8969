"""Agents without a recorded opening call are linked to a call if only one is possible."""

from __future__ import annotations

from uuid import UUID

from tests.otel.made_traces import agent, make_span, outline, projection_of, tool
from tests.otel.projections import Projected
from tracer.records import Kind


def test_orphan_agent_is_linked_by_its_request() -> None:
    run = projection_of(
        make_span(1, "workflow"),
        agent(2, "a", parent=1),
        tool(3, "ask", '{"q":"one"}', parent=2, at=(1, 9)),
        tool(4, "ask", '{"q":"two"}', parent=2, at=(1, 9)),
        agent(5, "b", asked="two", parent=1, at=(2, 8)),
        agent(6, "b", asked="one", parent=1, at=(2, 8)),
    )

    assert outline(run) == [
        "plan a",
        "  step a",
        '    call ask {"q":"one"}',
        "      plan b (inferred)",
        "        step b",
        '    call ask {"q":"two"}',
        "      plan b (inferred)",
        "        step b",
    ]


def test_orphan_agent_is_linked_by_time_to_the_only_call() -> None:
    run = projection_of(
        make_span(1, "workflow"),
        agent(2, "a", parent=1),
        tool(3, "ask", parent=2, at=(1, 9)),
        tool(4, "weather", parent=2, at=(1, 3)),
        agent(5, "b", parent=1, at=(2, 8)),
    )

    (sub_plan,) = (plan for plan in run.records[Kind.PLAN].values() if plan["agent_name"] == "b")
    assert sub_plan["inferred_from"] == "the only call of the run that was running all the while"
    assert outline(run)[2:4] == ["    call ask None", "      plan b (inferred)"]


def test_agent_below_an_agent_is_not_linked_by_time_to_the_call_of_another_agent() -> None:
    run = projection_of(
        agent(1, "a"),
        tool(2, "ask", parent=1, at=(1, 9)),
        agent(3, "b", parent=2, at=(1, 9)),
        tool(4, "search", parent=3, at=(2, 8)),
        agent(5, "c", parent=1, at=(3, 7)),
    )

    assert outline(run)[-2:] == ["    plan c", "      step c"]


def test_agent_whose_parent_may_arrive_is_not_linked_by_time() -> None:
    run = projection_of(
        agent(1, "a"), tool(2, "x", parent=1, at=(1, 9)), agent(3, "b", parent=99, at=(2, 8))
    )

    assert outline(run)[2:] == ["    call x None", "unplaced", "  plan b unknown", "    step b"]


def test_parallel_runs_of_one_agent_are_not_linked_by_time() -> None:
    run = projection_of(
        make_span(1, "both"),
        agent(2, "a", parent=1),
        tool(3, "x", parent=2, at=(1, 9)),
        agent(4, "a", parent=1, at=(2, 8)),
    )

    assert not any(plan["inferred"] for plan in run.records[Kind.PLAN].values())


def test_agent_with_two_possible_openers_is_not_linked() -> None:
    run = projection_of(
        agent(2, "a"),
        tool(3, "ask", '{"q":"same"}', parent=2, at=(1, 9)),
        tool(4, "ask", '{"q":"same"}', parent=2, at=(1, 9)),
        agent(5, "b", asked="same", parent=2, at=(2, 8)),
    )

    assert outline(run)[2:] == [
        '    call ask {"q":"same"}',
        '    call ask {"q":"same"}',
        "    plan b",
        "      step b",
    ]


def test_agent_with_the_request_of_its_parent_stays_a_hand_off() -> None:
    run = projection_of(
        agent(1, "a", asked="plan"),
        tool(2, "search", '{"q":"plan"}', parent=1, at=(1, 2)),
        agent(3, "b", asked="plan", parent=1, at=(3, 8)),
    )

    assert outline(run)[2:] == ['    call search {"q":"plan"}', "    plan b", "      step b"]


def test_agent_below_an_agent_is_linked_to_the_call_with_its_request() -> None:
    run = projection_of(
        agent(1, "a"),
        tool(2, "delegate", '{"to":"b","task":"plan"}', parent=1, at=(1, 2)),
        agent(3, "b", asked="plan", parent=1, at=(3, 8)),
    )

    assert outline(run)[3] == "      plan b (inferred)"


def test_agent_is_not_linked_to_a_call_that_already_opened_an_agent() -> None:
    run = projection_of(
        agent(1, "a"),
        tool(2, "ask_b", '{"q":"x"}', parent=1, at=(0, 2)),
        agent(3, "b", asked="x", parent=2, at=(0, 2)),
        agent(4, "b", asked="x", parent=99, at=(3, 4)),
    )

    assert outline(run)[-3:] == ["unplaced", "  plan b unknown", "    step b"]


def test_work_below_a_missing_span_is_linked_by_its_request() -> None:
    """So Strands tells of a cancelled agent: not of the cycle that it was in."""
    cancelled = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "b",
        "gen_ai.input.messages": '[{"role": "user", "content": "x"}]',
        "strands.cancellation.type": "CancelledError",
    }
    asked = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": '[{"content": "x"}]'}
    run = projection_of(
        agent(1, "a"),
        tool(2, "ask", '{"q":"x"}', parent=1, at=(1, 9)),
        make_span(3, "invoke_agent b", cancelled, parent=2, at=(2, 8)),
        make_span(4, "chat", asked, parent=99, at=(3, 4)),
        tool(5, "search", "{}", parent=99, at=(4, 7)),
    )

    assert outline(run)[2:] == [
        '    call ask {"q":"x"}',
        "      plan b cancelled",
        "        step b cancelled",
        "          plan x unknown (inferred)",
        "            step None unknown",
        "              round None",
        "                call search {} (inferred)",
    ]


def test_work_is_not_linked_if_two_agents_have_its_request() -> None:
    asked = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": '[{"content": "x"}]'}
    run = projection_of(
        agent(1, "a"),
        tool(2, "ask", '{"q":"x"}', parent=1, at=(1, 9)),
        agent(3, "b", asked="x", parent=2, at=(2, 8)),
        agent(4, "b", asked="x", parent=2, at=(2, 8)),
        make_span(5, "chat", asked, parent=99, at=(3, 4)),
    )

    assert [line for line in outline(run) if "plan" in line and "inferred" in line] == [
        "      plan x unknown (inferred)"
    ]


ASKED = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": '[{"content": "x"}]'}


def test_agent_with_too_many_possible_openers_is_not_linked() -> None:
    ended = [tool(each, "ask", '{"q":"x"}', at=(0, 1)) for each in range(10, 120)]
    own = [tool(each, "search", parent=99, at=(4, 5)) for each in range(200, 300)]
    run = projection_of(
        *ended,
        *own,
        tool(2, "ask", '{"q":"x"}', at=(1, 9)),
        make_span(4, "chat", ASKED, parent=99, at=(3, 4)),
    )

    assert not any(plan["inferred"] for plan in run.records[Kind.PLAN].values())


def test_agents_that_seem_to_open_each_other_are_not_linked() -> None:
    run = projection_of(
        make_span(1, "workflow"),
        agent(2, "a", asked="x", parent=1, at=(0, 5)),
        tool(3, "ask", '{"q":"y"}', parent=2, at=(0, 5)),
        agent(4, "b", asked="y", parent=1, at=(0, 5)),
        tool(5, "ask", '{"q":"x"}', parent=4, at=(0, 5)),
    )

    assert outline(run)[:3] == ["plan workflow", "  step None", "    plan a"]


def test_agents_whose_links_form_circles_are_not_linked() -> None:
    spans = [
        agent(3, "ask", parent=14, at=(1, None), asked="ask"),
        agent(13, "x", parent=13, at=(2, 4), asked="ask"),
        agent(14, "b", parent=4, at=(1, 4)),
        agent(9, "a", parent=14, at=(1, 5), asked="ask"),
        tool(6, "y", '["ask","tell"]', parent=13, at=(1, None)),
        tool(11, "x", '["ask","tell"]', parent=8, at=(1, 7)),
        agent(4, "b", at=(2, None), asked="go"),
        agent(8, "a", parent=3, at=(1, 8), asked="go"),
        tool(10, "x", "ask", parent=9, at=(1, 3)),
    ]

    for some in (spans, spans[::-1], spans[1:], spans[:-1]):
        run = projection_of(*some)
        depths = [plan["depth"] for plan in run.records[Kind.PLAN].values()]
        assert None not in depths
        assert not any(_opened_itself(plan_id, run) for plan_id in run.records[Kind.PLAN])


def _opened_itself(plan_id: UUID, run: Projected) -> bool:
    """Return whether the plans above a plan form a circle."""
    seen: set[UUID] = set()
    above: UUID | None = plan_id
    while above is not None and above not in seen:
        seen.add(above)
        above = run.records[Kind.PLAN][above]["parent_plan_id"]
    return above is not None
