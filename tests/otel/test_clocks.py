"""Times of processes whose clocks disagree: which spans are shifted, and by how much."""

from __future__ import annotations

from typing import Any

import pytest

from tests.otel.made_traces import ORIGIN, agent, chat, make_span, projection_of, tool
from tests.otel.projections import Projected
from tracer.otel.otlp.spans import EPOCH
from tracer.records import Kind

LOCAL, REMOTE = 0x100, 0x300
PLANNER, WORKER = {"service.name": "planner"}, {"service.name": "worker"}
ENDLESS = None

Times = tuple[float | None, float | None, float | None]
"""The start and the end of a record, in seconds as `made` counts, and its shift in seconds."""


def times_of(run: Projected, name: str) -> Times:
    """Return the times of the agent or tool with this name."""
    steps = (each for each in run.records[Kind.STEP].values() if each["agent_name"] == name)
    calls = (each for each in run.records[Kind.TOOL_CALL].values() if each["name"] == name)
    (record,) = (*steps, *calls)
    shift = record["clock_shift_us"]
    start, end = (
        None if record[field] is None else (record[field] - EPOCH).total_seconds() - ORIGIN - 1
        for field in ("started_at", "finished_at")
    )
    return start, end, None if shift is None else shift / 1e6


def run_of(at: tuple[float, float | None], **more: Any) -> Projected:
    """Return a run of a planner with a tool from 10 to 20, which calls a worker."""
    return projection_of(
        agent(1, "planner"),
        chat(2, parent=1, at=(1, 2)),
        tool(3, "ask", parent=1, at=(10, 20)),
        agent(4, "worker", parent=3, at=at, **more),
    )


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ((5, 9), (13, 17, 8)),  # starts before its caller: the rest is divided
        ((18, 22), (13, 17, -5)),  # ends after it, although it took less time
        ((105, 109), (13, 17, -92)),
        ((11, 15), (11, 15, None)),  # fits
        ((5, 17), (10, 22, 5)),  # took longer than its caller waited
        ((11, 30), (11, 30, None)),  # was still working when the caller gave up
        ((5, ENDLESS), (10, None, 5)),
        ((15, ENDLESS), (15, None, None)),
    ],
)
def test_call_to_another_process_is_shifted_into_its_caller_if_times_contradict(
    recorded: tuple[float, float | None], expected: Times
) -> None:
    assert times_of(run_of(recorded, flags=REMOTE), "worker") == expected
    assert times_of(run_of(recorded, resource=WORKER), "worker") == expected


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"flags": LOCAL},
        {"flags": LOCAL, "resource": WORKER},  # a second provider in the same process
        {"flags": REMOTE, "kind": 5, "resource": WORKER},  # a consumer of messages
    ],
)
@pytest.mark.parametrize("recorded", [(5, 9), (18, 22)])
def test_times_within_one_process_are_never_changed(
    recorded: tuple[float, float], more: dict[str, Any]
) -> None:
    assert times_of(run_of(recorded, **more), "worker") == (*recorded, None)


@pytest.mark.parametrize(
    "same", [{"service.instance.id": "1"}, {"host.id": "h"}, {"host.name": "laptop"}]
)
def test_processes_of_one_machine_have_one_clock(same: dict[str, str]) -> None:
    run = projection_of(
        agent(1, "planner", resource={**PLANNER, **same}),
        agent(2, "worker", parent=1, at=(90, 110), flags=REMOTE, resource={**WORKER, **same}),
    )

    assert times_of(run, "worker") == (90, 110, None)


def test_work_below_a_shifted_span_is_shifted_with_it() -> None:
    run = projection_of(
        agent(1, "planner", at=(100, 200), resource=PLANNER),
        agent(2, "worker", parent=1, at=(50, 110), resource=WORKER),
        tool(3, "search", parent=2, at=(90, 95), resource=WORKER),
        tool(4, "index", parent=2, at=(105, 130), flags=LOCAL, resource=WORKER),
        chat(5, parent=2, at=(50, 60), resource=WORKER),
    )

    assert times_of(run, "worker") == (120, 180, 70)
    assert times_of(run, "search") == (160, 165, 70)
    assert times_of(run, "index") == (175, 200, 70)  # outlives its parent, as recorded
    (think_act,) = run.records[Kind.THINK_ACT].values()
    assert think_act["clock_shift_us"] == 70_000_000
    plans = run.records[Kind.PLAN].values()
    assert {plan["clock_shift_us"] for plan in plans} == {None, 70_000_000}
    assert run.whole_run["started_at"] == min(plan["started_at"] for plan in plans)


def test_process_that_is_called_back_keeps_its_clock() -> None:
    first = {**PLANNER, "host.name": "a"}
    run = projection_of(
        agent(1, "planner", at=(100, 200), resource=first),
        agent(2, "worker", parent=1, at=(50, 110), resource=WORKER),
        agent(3, "helper", parent=2, at=(110, 112), flags=REMOTE, resource=first),
    )

    assert times_of(run, "worker") == (120, 180, 70)
    assert times_of(run, "helper") == (110, 112, None)


def test_shift_of_a_process_counts_for_the_calls_that_it_makes() -> None:
    run = projection_of(
        agent(1, "planner", at=(100, 200), resource=PLANNER),
        agent(2, "worker", parent=1, at=(50, 110), resource=WORKER),
        agent(3, "helper", parent=2, at=(52, 102), resource={"service.name": "helper"}),
    )

    assert times_of(run, "worker") == (120, 180, 70)
    assert times_of(run, "helper") == (125, 175, 73)  # by the times that its caller really had


def test_span_without_times_is_not_shifted() -> None:
    run = projection_of(
        agent(1, "planner", resource=PLANNER),
        make_span(
            2,
            "execute_tool ask",
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ask"},
            parent=1,
            at=(-1, None),
            resource=WORKER,
        ),
    )

    assert times_of(run, "ask") == (None, None, None)
