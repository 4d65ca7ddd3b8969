"""A run whose topmost parents are in another process ends when all of its spans have ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.otel.made_traces import agent, chat, make_span, outline, projection_of, tool
from tests.otel.projections import Projected
from tracer.records import Kind

LOCAL, REMOTE, UNSTATED = 0x101, 0x301, 1
CHAIN, LLM = {"openinference.span.kind": "CHAIN"}, {"openinference.span.kind": "LLM"}
ELSEWHERE = [
    *(pytest.param(flags, id=f"{flags:#x}") for flags in (REMOTE, 0x200)),
    pytest.param(UNSTATED, id="unstated"),
]


def graph(**more: Any) -> list[dict[str, Any]]:
    asked = '{"messages": [{"role": "user", "content": "How is it?"}]}'
    answered = '{"messages": [{"role": "assistant", "content": "Well."}]}'
    contents = {"input.value": asked, "output.value": answered}
    model = {**LLM, "llm.token_count.prompt": 7}
    return [
        make_span(1, "LangGraph", {**CHAIN, **contents}, parent=77, at=(0, 6), **more),
        make_span(2, "agent", CHAIN, parent=1, at=(1, 5), flags=LOCAL),
        make_span(3, "ChatOpenAI", model, parent=2, at=(2, 4), flags=LOCAL),
    ]


def root_of(run: Projected) -> dict[str, Any]:
    """Return what the run's root plan states, with its duration in seconds."""
    plan = run.records[Kind.PLAN][run.root_plan_id]
    duration = plan["finished_at"] and (plan["finished_at"] - plan["started_at"])
    return {
        "status": plan["status"].value,
        "seconds": duration and duration / timedelta(seconds=1),
        "request": plan["user_request"],
    }


@pytest.mark.parametrize("flags", ELSEWHERE)
def test_graph_below_a_span_of_another_process_ends_with_its_spans(flags: int) -> None:
    run = projection_of(*graph(flags=flags))

    assert root_of(run) == {"status": "succeeded", "seconds": 6, "request": "How is it?"}
    assert outline(run) == ["plan LangGraph (inferred)", "  step LangGraph", "    round 7"]


def test_graph_below_a_local_span_is_open_until_this_span_arrives() -> None:
    before = projection_of(*graph(flags=LOCAL))
    after = projection_of(*graph(flags=LOCAL), make_span(77, "request", at=(0, 8)))

    assert root_of(before)["status"] == "running"
    assert root_of(after) | {"request": None} == {
        "status": "succeeded",
        "seconds": 8,
        "request": None,
    }


def test_run_below_another_process_is_open_again_if_an_open_span_arrives() -> None:
    ended = graph(flags=REMOTE)
    still_open = make_span(4, "ChatOpenAI", LLM, parent=2, at=(4, None))

    assert root_of(projection_of(*ended, still_open))["status"] == "running"
    assert root_of(projection_of(*ended))["status"] == "succeeded"


@pytest.mark.parametrize("flags", ELSEWHERE)
@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (chat(1, parent=77, at=(1, 3)), "succeeded"),
        (chat(1, parent=77, at=(1, 3), failed="503"), "failed"),
        (tool(1, "search", parent=77, at=(1, 3)), "succeeded"),
        (agent(1, "a", parent=77, at=(1, 3)), "succeeded"),
        (make_span(1, "I'm a server span", parent=77, at=(1, 3), kind=2), "succeeded"),
        (
            make_span(1, "w", {"gen_ai.operation.name": "invoke_workflow"}, parent=77, at=(1, 3)),
            "succeeded",
        ),
    ],
    ids=["chat", "failed chat", "tool", "agent", "server span", "workflow"],
)
def test_span_below_another_process_ends_its_run(
    span: dict[str, Any], flags: int, expected: str
) -> None:
    run = projection_of({**span, "flags": flags})

    assert (root_of(run)["status"], root_of(run)["seconds"]) == (expected, 2)


def test_status_and_end_of_several_requests_come_from_all_of_them() -> None:
    run = projection_of(
        agent(1, "a", parent=77, at=(0, 2), flags=REMOTE),
        agent(2, "b", parent=77, at=(3, 9), flags=REMOTE, failed="503"),
    )

    assert root_of(run) | {"request": None} == {"status": "failed", "seconds": 9, "request": None}


def test_work_of_another_process_does_not_end_a_run_that_waits_for_a_local_span() -> None:
    run = projection_of(
        chat(1, parent=77, at=(0, 2), flags=LOCAL),
        agent(2, "b", parent=78, at=(3, 9), flags=REMOTE),
    )

    assert root_of(run)["status"] == "running"


def test_status_of_a_request_without_agent_work_is_not_that_of_the_run() -> None:
    card = make_span(9, "GET /card", parent=77, at=(0, 1), flags=REMOTE, failed="404")

    run = projection_of(card, *graph(flags=REMOTE))

    assert root_of(run)["status"] == "succeeded"
