"""The rules of projection that hold for every convention."""

from __future__ import annotations

from uuid import UUID

from tests.otel.made_traces import TRACE_ID, agent, chat, make_span, outline, projection_of, tool
from tracer.records import Kind


def test_trace_id_is_the_root_plans_id() -> None:
    run = projection_of(agent(1, "a"))

    assert run.root_plan_id == UUID(TRACE_ID)
    assert run.root_plan_id in run.records[Kind.PLAN]


def test_record_ids_of_a_trace_share_their_leading_bytes() -> None:
    run = projection_of(agent(1, "a"), chat(2, parent=1), tool(3, "x", parent=1, at=(1, 2)))

    ids = [record_id for kind in run.records.values() for record_id in kind]
    assert len(ids) == 4  # plan, step, round, call
    assert {each.bytes[:6] for each in ids} == {UUID(TRACE_ID).bytes[:6]}
    assert {each.version for each in ids if each != run.root_plan_id} == {8}


def test_an_agent_under_an_agent_is_a_hand_off() -> None:
    run = projection_of(agent(1, "a"), chat(2, parent=1), agent(3, "b", parent=1))

    assert outline(run) == [
        "plan a",
        "  step a",
        "    round 1",
        "    plan b",
        "      step b",
    ]


def test_several_root_agents_get_a_synthetic_root_plan() -> None:
    run = projection_of(
        make_span(1, "POST /chat"),
        agent(2, "a", parent=1, at=(0, 1)),
        agent(3, "b", parent=1, at=(1, 2)),
    )

    assert outline(run) == [
        "plan POST /chat",
        "  step None",
        "    plan a",
        "      step a",
        "    plan b",
        "      step b",
    ]


def test_work_without_an_agent_belongs_to_the_root_plans_step() -> None:
    run = projection_of(make_span(1, "job"), chat(2, parent=1), tool(3, "x", parent=1, at=(1, 2)))

    assert run.is_agent_work
    assert outline(run) == [
        "plan job",
        "  step None",
        "    round 1",
        "      call x None (inferred)",
    ]


def test_trace_without_agent_work_has_only_a_root_plan() -> None:
    run = projection_of(make_span(1, "GET /"), make_span(2, "SELECT", parent=1))

    assert not run.is_agent_work
    assert outline(run) == ["plan GET /"]


def test_calls_with_the_same_id_are_matched_by_round_and_arguments() -> None:
    run = projection_of(
        agent(1, "a"),
        chat(2, ("call_0", "x", '{"n":1}'), ("call_0", "x", '{"n":2}'), parent=1, at=(0, 1)),
        tool(3, "x", '{"n": 2}', "call_0", parent=1, at=(1, 2)),
        tool(4, "x", '{"n": 1}', "call_0", parent=1, at=(1, 2)),
        chat(5, ("call_0", "x", '{"n":1}'), tokens=5, parent=1, at=(2, 3)),
        tool(6, "x", '{"n": 1}', "call_0", parent=1, at=(3, 4)),
    )

    assert outline(run) == [
        "plan a",
        "  step a",
        "    round 1",
        '      call x {"n": 2}',
        '      call x {"n": 1}',
        "    round 5",
        '      call x {"n": 1}',
    ]


def test_empty_call_ids_are_ignored() -> None:
    run = projection_of(
        agent(1, "a"),
        chat(2, ("", "x", '{"n":1}'), parent=1, at=(0, 1)),
        chat(3, ("", "y", '{"n":2}'), tokens=3, parent=1, at=(1, 2)),
        tool(4, "x", '{"n":1}', "", parent=1, at=(2, 3)),
    )

    assert outline(run)[2:4] == ["    round 1", '      call x {"n":1}']


def test_call_that_no_round_chose_is_inferred_to_belong_to_the_latest_round() -> None:
    run = projection_of(
        agent(1, "a"),
        chat(2, parent=1, at=(0, 1)),
        chat(3, tokens=3, parent=1, at=(2, 3)),
        chat(4, tokens=4, parent=1, at=(6, 7)),
        tool(5, "x", parent=1, at=(4, 5)),
    )

    assert outline(run)[2:] == [
        "    round 1",
        "    round 3",
        "      call x None (inferred)",
        "    round 4",
    ]


def test_model_inside_a_tool_chooses_no_calls_of_the_agent() -> None:
    run = projection_of(
        agent(1, "a"),
        chat(2, parent=1, at=(0, 1)),
        tool(3, "summarise", parent=1, at=(1, 5)),
        chat(4, tokens=7, parent=3, at=(2, 3)),
        tool(5, "x", parent=1, at=(4, 5)),
    )

    assert outline(run)[2:] == [
        "    round 1",
        "      call summarise None (inferred)",
        "      call x None (inferred)",
        "    round 7",
    ]


def test_tool_inside_a_tool_is_its_child() -> None:
    run = projection_of(agent(1, "a"), tool(2, "outer", parent=1), tool(3, "inner", parent=2))

    assert outline(run)[2:] == ["    call outer None", "      call inner None"]


def test_tokens_of_models_within_models_count_once() -> None:
    silent = make_span(2, "chat m", {"gen_ai.operation.name": "chat"}, parent=1)
    run = projection_of(
        agent(1, "a"), silent, chat(3, tokens=5, parent=2), chat(4, tokens=5, parent=3)
    )

    assert outline(run)[2:] == ["    round 5"]


def test_children_of_a_missing_span_are_below_a_placeholder() -> None:
    above = [agent(1, "a"), tool(2, "ask", parent=1, at=(1, 9))]
    below = [chat(4, parent=3), tool(5, "x", parent=3, at=(2, 3))]
    agent_between = agent(3, "b", parent=2, at=(1, 9))

    before = projection_of(*above, *below)
    after = projection_of(*above, *below, agent_between)

    assert outline(before) == [
        "plan a",
        "  step a",
        "    call ask None",
        "unplaced",
        "  plan None unknown",
        "    step None unknown",
        "      round 1",
        "        call x None (inferred)",
    ]
    assert outline(after) == [
        "plan a",
        "  step a",
        "    call ask None",
        "      plan b",
        "        step b",
        "          round 1",
        "            call x None (inferred)",
    ]
    assert set(before.records[Kind.STEP]) == set(after.records[Kind.STEP])
    assert set(before.records[Kind.PLAN]) == set(after.records[Kind.PLAN])


def test_agent_with_a_missing_opener_is_unplaced() -> None:
    run = projection_of(agent(1, "a"), agent(3, "b", parent=2))

    assert outline(run)[2:] == ["unplaced", "  plan b unknown", "    step b"]


def test_earliest_agent_is_the_root_plan_until_the_root_span_arrives() -> None:
    run = projection_of(
        chat(3, parent=2, at=(5, 6)), chat(4, tokens=4, parent=1, at=(0, 1), flags=0x100)
    )

    assert outline(run) == [
        "plan None running (inferred)",
        "  step None unknown",
        "    round 4",
        "unplaced",
        "  plan None unknown",
        "    step None unknown",
        "      round 1",
    ]


def test_unfinished_span_is_running_until_its_end_arrives() -> None:
    before = tool(2, "x", parent=1, at=(1, None))
    after = tool(2, "x", "{}", parent=1, at=(1, 2))

    assert outline(projection_of(agent(1, "a"), before))[2:] == ["    call x None running"]
    for versions in ([before, after], [after, before]):
        assert outline(projection_of(agent(1, "a"), *versions))[2:] == ["    call x {}"]


def test_failed_span_has_its_error_and_cancelled_span_its_status() -> None:
    error = {"exception.type": "asyncio.exceptions.CancelledError", "exception.message": ""}
    run = projection_of(
        agent(1, "a"),
        tool(2, "x", parent=1, failed="503", at=(1, 2)),
        tool(
            3,
            "y",
            parent=1,
            failed="",
            at=(2, 3),
            events=[{"name": "exception", "attributes": error}],
        ),
    )

    failed, cancelled = run.records[Kind.TOOL_CALL].values()
    assert (failed["status"].value, failed["error_message"]) == ("failed", "503")
    assert cancelled["status"].value == "cancelled"


def test_spans_in_a_circle_are_projected() -> None:
    run = projection_of(agent(1, "a", parent=2), tool(2, "x", parent=3), chat(3, parent=1))

    assert len(run.record_of) == 3


def test_a_span_that_is_its_own_parent_is_a_root() -> None:
    run = projection_of(agent(1, "a", parent=1))

    assert outline(run) == ["plan a", "  step a"]


def test_three_nested_spans_with_one_agent_name_are_one_agent() -> None:
    inner = [agent(each, "a", parent=each - 1, at=(each, 9)) for each in (2, 3)]
    run = projection_of(agent(1, "a"), *inner, chat(4, parent=3, at=(4, 5)))

    assert outline(run) == ["plan a", "  step a", "    round 1"]


def test_session_and_subject_of_a_span_inside_a_round_are_used() -> None:
    said = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "s", "user.id": "u"}
    run = projection_of(agent(1, "a"), chat(2, parent=1), make_span(3, "chat", said, parent=2))

    assert run.run == {"session_id": "s", "subject": "u"}


def test_conversation_and_user_become_session_and_subject() -> None:
    run = projection_of(
        make_span(
            1,
            "a",
            {
                "openinference.span.kind": "AGENT",
                "agent.name": "a",
                "session.id": "s",
                "user.id": "u",
            },
        )
    )

    assert run.run == {"session_id": "s", "subject": "u"}


def test_answer_of_an_agent_defaults_to_its_last_round_without_calls() -> None:
    said = {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": '[{"content": "low at six"}]',
    }
    run = projection_of(
        agent(1, "a"),
        make_span(2, "chat", said, parent=1, at=(80, 90)),
        tool(3, "ask", parent=1, at=(1, 20)),
        agent(4, "asks on", parent=3, at=(1, 20)),
        make_span(5, "chat", said, parent=4, at=(1, 2)),
        chat(6, ("c", "search", "{}"), parent=4, at=(3, 4)),
        tool(7, "sum_up", parent=1, at=(91, 99)),
        make_span(8, "chat", {**said, "gen_ai.output.messages": '[{"content": "x"}]'}, parent=7),
        agent(9, "goes on", parent=3, at=(1, None)),
        make_span(10, "chat", said, parent=9, at=(1, 2)),
    )

    answers = {plan["agent_name"]: plan["summary"] for plan in run.records[Kind.PLAN].values()}
    assert answers == {"a": "low at six", "asks on": None, "goes on": None}
