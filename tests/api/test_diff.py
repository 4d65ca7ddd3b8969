"""Two runs compared over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.routes.diff import MOST_MESSAGE_BYTES
from tests.api.conftest import Api
from tests.contract.moments import Moments
from tests.sample_runs import sample_run
from tracer.records import new_id


async def test_diff_of_two_runs_counts_added_and_changed_records(api: Api) -> None:
    left = await api.record(sample_run(sub_plans=1))
    right = await api.record(sample_run(sub_plans=2, title="Another review"))

    diff: Any = await api.read(f"/api/runs/{left.root}/diff/{right.root}")

    assert diff["counts"] == {"added": 2, "removed": 0, "changed": 1, "same": 5}
    assert (diff["root"]["change"], diff["root"]["differs"]) == ("changed", ["name"])
    assert diff["left"]["totals"]["toolCalls"] == 2
    assert diff["right"]["totals"]["toolCalls"] == 3


async def test_diff_reports_texts_that_differ_after_2_kb(api: Api) -> None:
    roots = []
    for end in "ab":
        run = Moments()
        await api.writer.write(
            [
                run.plan_started(steps=(run.planned(),)),
                run.call_started(name="fetch"),
                run.call_finished(result="x" * 5000 + end),
            ]
        )
        roots.append(run.root)

    diff: Any = await api.read(f"/api/runs/{roots[0]}/diff/{roots[1]}")

    [call] = diff["root"]["children"][0]["children"]
    assert (call["name"], call["differs"]) == ("fetch", ["result"])


async def test_diff_compares_80_levels_of_sub_plans(api: Api) -> None:
    run = Moments()
    plan, call = run.root, run.call
    events: list[Any] = [run.plan_started(), run.call_started()]
    for level in range(1, 80):
        above, plan, opener, call, step = plan, new_id(), call, new_id(), new_id()
        events += [
            run.sub_plan_started(plan, opener, parent_plan_id=above, depth=level),
            run.call_started(plan_id=plan, step_id=step, tool_call_id=call),
        ]
    await api.writer.write(events)

    diff: Any = await api.read(f"/api/runs/{run.root}/diff/{run.root}")

    assert diff["counts"]["same"] == 3 * 80


async def test_comparison_covers_the_runs_that_continue_the_compared_ones(api: Api) -> None:
    roots = []
    for tool in ("pay", "refund"):
        first, later = Moments(), Moments()
        await api.writer.write([first.plan_started(), first.step_started(), first.call_started()])
        claim: Any = {"follows_calls": (first.call,)}
        await api.writer.write(
            [
                later.plan_started(20, **claim),
                later.step_started(21),
                later.call_started(22, name=tool),
            ]
        )
        roots.append(first.root)
    await api.projection.link()

    diff: Any = await api.read(f"/api/runs/{roots[0]}/diff/{roots[1]}")

    [call] = diff["root"]["children"][0]["children"]
    [part] = call["children"]
    calls = part["children"][0]["children"]
    assert {each["name"]: each["change"] for each in calls} == {"pay": "removed", "refund": "added"}
    assert diff["right"]["totals"]["toolCalls"] == 2


async def test_comparison_with_a_missing_run_gets_404(api: Api) -> None:
    run = await api.record(sample_run())
    for path in (f"{run.root}/diff/{new_id()}", f"{new_id()}/diff/{run.root}"):
        answer = await api.get(f"/api/runs/{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_diff_ignores_json_whitespace_and_key_order(api: Api) -> None:
    """Postgres computes the digests of other texts itself."""
    roots = []
    for arguments, result in [
        ('{"city":"Brest","days":[1,2]}', '["é"]'),
        ('\n{ "days": [1, 2], "city": "Brest" }', ' [ "\\u00e9" ] '),
        ('{"city": "Brest"', "plain"),
    ]:
        run = Moments()
        await api.writer.write(
            [
                run.plan_started(steps=(run.planned(),)),
                run.thought_started(messages='[{"role": "user", "content": "Where?"}]'),
                run.call_started(arguments=arguments),
                run.call_finished(result=result),
            ]
        )
        roots.append(run.root)

    same: Any = await api.read(f"/api/runs/{roots[0]}/diff/{roots[1]}")
    other: Any = await api.read(f"/api/runs/{roots[0]}/diff/{roots[2]}")

    assert same["counts"] == {"added": 0, "removed": 0, "changed": 0, "same": 4}
    assert other["counts"]["changed"] == 1


@pytest.mark.thorough
async def test_diff_skips_messages_if_they_exceed_the_size_limit(api: Api) -> None:
    """Reading them would take more memory than the rest of the request."""
    roots = []
    for end in "ab":
        run = Moments()
        large = json.dumps([{"role": "user", "content": "x" * (MOST_MESSAGE_BYTES // 2) + end}])
        answer = await api.writer.write([run.plan_started(), run.thought_started(messages=large)])
        assert answer.refused == []
        roots.append(run.root)

    diff: Any = await api.read(f"/api/runs/{roots[0]}/diff/{roots[1]}")

    assert (diff["messagesCompared"], diff["counts"]["changed"]) == (False, 0)
