"""Calls that the last round of an ended agent chose, and that no span executed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.otel.made_traces import agent, chat, make_span, outline, projection_of, tool
from tests.otel.projections import Projected
from tracer.records import Kind

SEARCH = ("c1", "search", '{"q":1}')
PAY = ("c2", "pay", '{"amount":40}')
GRAPH = {"openinference.span.kind": "CHAIN"}


def endings(run: Projected) -> list[tuple[str, str, str | None]]:
    """Return the name, status and reason of each tool call, sorted."""
    return sorted(
        (call["name"], call["status"].value, call["reason"])
        for call in run.records[Kind.TOOL_CALL].values()
    )


def interrupted(number: int, name: str, error: str, **more: Any) -> dict[str, Any]:
    """Return a span that ended with an error by which a framework pauses."""
    event = {"name": "exception", "attributes": {"exception.type": error}}
    return make_span(number, name, GRAPH, failed=error, events=[event], **more)


def test_call_of_the_last_round_that_nothing_executed_is_not_reached() -> None:
    run = projection_of(
        agent(1, "planner"),
        chat(2, SEARCH, PAY, parent=1, at=(1, 2)),
        tool(3, "search", '{"q":1}', "c1", parent=1, at=(3, 4)),
    )

    assert outline(run) == [
        "plan planner",
        "  step planner",
        "    round 1",
        '      call search {"q":1}',
        '      call pay {"amount":40} cancelled',
    ]
    (call,) = [each for each in run.records[Kind.TOOL_CALL].values() if each["reason"] is not None]
    assert (call["reason"], call["provider_call_id"]) == ("not_reached", "c2")
    assert call["started_at"] == call["finished_at"] == run.whole_run["finished_at"]
    assert run.whole_run["tool_calls"] == 2
    assert run.whole_run["failed_calls"] == 0


@pytest.mark.parametrize(
    "later",
    [
        [tool(3, "pay", '{"amount":40}', parent=1, at=(3, 4))],  # without a call id
        [tool(3, "pay", '{"amount":41}', "c9", parent=1, at=(3, 4))],  # changed by a hook
        [tool(3, "mcp/pay", parent=1, at=(3, 4))],  # under another name
        [make_span(3, "pay", {"custom": 1}, parent=1, at=(3, 4))],  # a span of the program's own
        [tool(3, "pay", '{"amount":40}', "c2", parent=9, at=(3, 4))],  # below a lost parent
        [chat(3, parent=1, at=(3, 4))],  # another round follows
        [agent(3, "payer", parent=1, at=(3, 4))],  # another agent took over
    ],
)
def test_call_that_a_span_may_have_executed_gets_no_record(later: list[dict[str, Any]]) -> None:
    run = projection_of(agent(1, "planner"), chat(2, PAY, parent=1, at=(1, 2)), *later)

    assert "cancelled" not in {status for _, status, _ in endings(run)}


@pytest.mark.parametrize(
    "spans",
    [
        [agent(1, "planner", at=(0, None)), chat(2, PAY, parent=1, at=(1, 2))],
        [agent(1, "planner"), chat(2, PAY, parent=1, at=(1, None))],
        [agent(1, "planner"), chat(2, PAY, parent=1, at=(1, 2), failed="cut off")],
        [chat(2, PAY, at=(1, 2))],  # a plain request: its caller executes the call
    ],
)
def test_unfinished_work_and_plain_requests_have_no_unreached_calls(
    spans: list[dict[str, Any]],
) -> None:
    assert endings(projection_of(*spans)) == []


def test_emitter_without_tool_spans_has_no_unreached_calls() -> None:
    run = projection_of(
        agent(1, "planner"),
        chat(2, SEARCH, parent=1, at=(1, 2)),
        chat(3, PAY, parent=1, at=(3, 4)),
    )

    assert endings(run) == []


def test_tool_without_spans_in_earlier_rounds_has_no_unreached_calls() -> None:
    remote = ("c3", "remote", "{}")
    run = projection_of(
        agent(1, "planner"),
        chat(2, SEARCH, remote, parent=1, at=(1, 2)),
        tool(3, "search", '{"q":1}', "c1", parent=1, at=(3, 4)),
        chat(4, remote, PAY, parent=1, at=(5, 6)),
    )

    assert endings(run) == [("pay", "cancelled", "not_reached"), ("search", "succeeded", None)]


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (("c1", "City", '{"name": "Bonn", "n": 1}'), '{"name":"Bonn","n":1}'),  # pydantic-ai
        (("c1", "number", '{"response": 5}'), "5"),  # pydantic-ai: no object
        (("c1", "City", '{"name":"Bonn"}'), '{"structured_response":{"name":"Bonn"}}'),
        (("c1", "say", '{"text":"It is done."}'), "It is done."),
        (("c1", "final_result", "{}"), None),  # its content was not recorded
        (("c1", "final_result_City", '{"name":"Bonn"}'), None),
        (("c1", "StructuredOutput", '{"name":"Bonn"}'), None),  # Claude Agent SDK
    ],
)
def test_call_of_an_output_tool_gets_no_record(
    call: tuple[str, str, str], answer: str | None
) -> None:
    ended = agent(1, "planner")
    if answer is not None:
        ended["attributes"].append({"key": "final_result", "value": {"stringValue": answer}})

    run = projection_of(ended, chat(2, PAY, call, parent=1, at=(1, 2)))

    assert endings(run) == [("pay", "cancelled", "not_reached")]


@pytest.mark.parametrize(
    "spans",
    [
        # pydantic-ai: the output is a DeferredToolRequests
        [
            make_span(
                1,
                "invoke_agent planner",
                {
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.agent.name": "planner",
                    "final_result": json.dumps(
                        {"calls": [], "approvals": [{"tool_name": "pay", "tool_call_id": "c2"}]}
                    ),
                },
            )
        ],
        # LangGraph: the middleware that asks for an approval raises
        [
            agent(1, "planner"),
            interrupted(3, "Approve.after_model", "GraphInterrupt", parent=1, at=(2, 3)),
        ],
        # Strands: the reason is in an event
        [
            agent(
                1,
                "planner",
                events=[{"name": "gen_ai.choice", "attributes": {"finish_reason": "interrupt"}}],
            )
        ],
        # The agent's own span ends with the error
        [agent(1, "planner", failed="ApprovalRequired")],
    ],
)
def test_unreached_call_of_a_paused_agent_is_deferred(spans: list[dict[str, Any]]) -> None:
    run = projection_of(*spans, chat(2, PAY, parent=1, at=(1, 2)))

    assert endings(run) == [("pay", "cancelled", "deferred")]


def test_graph_that_pauses_before_its_tools_defers_their_calls() -> None:
    model = {
        "openinference.span.kind": "LLM",
        "llm.token_count.prompt": 1,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c2",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "pay",
    }
    run = projection_of(
        make_span(1, "LangGraph", GRAPH),
        make_span(2, "ChatOpenAI", model, parent=1, at=(1, 2)),
        interrupted(3, "HumanInTheLoopMiddleware.after_model", "GraphInterrupt", parent=1),
    )

    assert endings(run) == [("pay", "cancelled", "deferred")]


def test_record_of_an_unreached_call_is_replaced_when_its_span_arrives() -> None:
    spans = [agent(1, "planner"), chat(2, PAY, parent=1, at=(1, 2))]
    before = projection_of(*spans)

    after = projection_of(*spans, tool(3, "pay", '{"amount":40}', "c2", parent=1, at=(3, 4)))

    assert endings(before) == [("pay", "cancelled", "not_reached")]
    assert endings(after) == [("pay", "succeeded", None)]
