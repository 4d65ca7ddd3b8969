"""API responses about runs, plans, tool calls and think-acts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.api.conftest import Api
from tests.sample_runs import START, sample_run
from tracer.records import Status, new_id
from tracer.records.events import PlanStarted, ToolCallFinished, ToolCallStarted


async def test_run_contains_its_root_plan_and_totals(api: Api) -> None:
    run = await api.record(sample_run(sub_plans=2))

    shown = await api.read(f"/api/runs/{run.root}")

    assert str(run.root) == shown["rootPlanId"]
    assert shown["title"] == "Weekly review"
    assert shown["status"] == "succeeded"
    assert (
        shown["toolCalls"],
        shown["failures"],
        shown["inputTokens"],
        shown["outputTokens"],
    ) == (3, 1, 100, 20)
    assert shown["tags"] == ["sample"]
    duration = shown["durationMs"]
    assert isinstance(duration, float)
    assert duration > 0


async def test_runs_are_listed_newest_first_in_pages(api: Api) -> None:
    roots = [str((await api.record(sample_run(title=f"run {n}"))).root) for n in range(5)]

    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page: Any = await api.read("/api/runs", limit=2, **cursor)
        seen += [run["rootPlanId"] for run in page["items"]]
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}

    assert roots[::-1] == seen


async def test_search_in_a_run_shows_whether_all_its_words_are_indexed(api: Api) -> None:
    shown = {}
    for characters in (65_536, 65_537):  # the index has the first 64 kB of a text
        run = sample_run()
        long = {"user_request": "cuff ".rjust(characters, "x")}
        run.events[0] = run.events[0].model_copy(update=long)
        await api.record(run)
        listed: Any = await api.read("/api/runs", q="well")
        assert str(run.root) in {each["rootPlanId"] for each in listed["items"]}
        found = await api.read(f"/api/runs/{run.root}/search", q="cuff")
        shown[characters] = found["isCut"]

    assert shown == {65_536: False, 65_537: True}


async def test_runs_are_filtered_by_query_parameters(api: Api) -> None:
    fine = await api.record(sample_run(title="Blood pressure"))
    late = await api.record(
        sample_run(title="Medication", finished=False, start=START + timedelta(days=1))
    )

    async def found(**parameters: str) -> list[str]:
        page: Any = await api.read("/api/runs", **parameters)
        return [run["rootPlanId"] for run in page["items"]]

    both = [str(late.root), str(fine.root)]
    assert [str(fine.root)] == await found(status="succeeded")
    assert [str(late.root)] == await found(status="running")
    assert await found(status="abandoned") == []
    assert [str(fine.root)] == await found(q="blood")
    assert both == await found(q="CUFF is loose")
    assert await found(q="100%") == []
    assert both == await found(agent="pharmacist")
    assert both == await found(tool="measure")
    assert await found(tool="nothing") == []
    assert [str(late.root)] == await found(**{"from": "2026-01-02T00:00:00Z"})
    assert [str(fine.root)] == await found(to="2026-01-01T13:00:00+00:00")


async def test_runs_are_listed_by_session_subject_and_tag(api: Api) -> None:
    roots = [new_id() for _ in range(2)]
    for number, root in enumerate(roots):
        started = PlanStarted(
            at=START,
            root_plan_id=root,
            plan_id=root,
            session_id="ward-3",
            subject=f"p-{number}",
            tags=("night\0",) * number,
        )
        await api.writer.write([started])
    first, second = map(str, roots)

    async def found(**parameters: str) -> list[str]:
        page: Any = await api.read("/api/runs", **parameters)
        return [run["rootPlanId"] for run in page["items"]]

    assert await found(session="ward-3") == [second, first]
    assert await found(session="ward-3", subject="p-0") == [first]
    assert await found(subject="p") == []
    assert await found(tag="night\0") == await found(tag="night␛0000") == [second]
    assert await found(tag="night") == []


async def test_sub_plan_contains_the_tool_call_that_opened_it(api: Api) -> None:
    run = await api.record(sample_run(sub_plans=2))

    shown: Any = await api.read(f"/api/plans/{run.sub_plans[1]}")

    assert str(run.opening_calls[1]) == shown["toolCallId"]
    assert {
        "toolCallId": str(run.opening_calls[1]),
        "name": "check",
        "arguments": '{"number":1}',
        "status": "succeeded",
    } == shown["parentActToolCall"]


async def test_root_plan_has_no_parent_tool_call(api: Api) -> None:
    run = await api.record(sample_run())

    shown = await api.read(f"/api/plans/{run.root}")

    assert shown["parentActToolCall"] is None


async def test_tree_nests_sub_plans_under_their_calls(api: Api) -> None:
    run = await api.record(sample_run(sub_plans=3))

    tree: Any = await api.read(f"/api/plans/{run.root}/tree")

    calls = tree["agentExecutions"][0]["thinkActs"][0]["toolCalls"]
    opened = {call["toolCallId"]: [plan["planId"] for plan in call["subPlans"]] for call in calls}
    expected: dict[str, list[str]] = {str(run.failed_call): []}
    expected |= {str(c): [str(p)] for c, p in zip(run.opening_calls, run.sub_plans, strict=True)}
    assert expected == opened
    assert tree["cumulative"]["toolCalls"] == 4
    assert tree["cumulative"]["failures"] == 1
    assert tree["unplaced"] == []
    assert calls[0]["error"] == {"type": "ValueError", "message": "the cuff is loose", "stack": "…"}


async def test_tree_with_depth_1_omits_sub_plans_and_counts_them(api: Api) -> None:
    run = await api.record(sample_run(sub_plans=3))

    tree: Any = await api.read(f"/api/plans/{run.root}/tree", depth=1)

    calls = tree["agentExecutions"][0]["thinkActs"][0]["toolCalls"]
    assert tree["subPlanCount"] == 3
    assert [call["subPlanCount"] for call in calls] == [0, 1, 1, 1]
    assert [call["subPlans"] for call in calls] == [[], [], [], []]


async def test_tree_of_a_sub_plan_starts_at_the_sub_plan(api: Api) -> None:
    run = await api.record(sample_run(sub_plans=2))

    tree: Any = await api.read(f"/api/plans/{run.sub_plans[0]}/tree")

    assert str(run.sub_plans[0]) == tree["planId"]
    assert str(run.opening_calls[0]) == tree["parentActToolCall"]["toolCallId"]
    assert tree["cumulative"]["toolCalls"] == 0


async def test_tree_with_payloads_none_omits_arguments(api: Api) -> None:
    run = await api.record(sample_run(sub_plans=1))

    tree: Any = await api.read(f"/api/plans/{run.root}/tree", payloads="none")

    call = tree["agentExecutions"][0]["thinkActs"][0]["toolCalls"][1]
    assert (
        call["arguments"],
        call["argumentsBytes"],
        call["argumentsTruncated"],
    ) == (None, 12, True)


async def test_tool_call_contains_its_lineage_and_sub_plans(api: Api) -> None:
    run = await api.record(sample_run(sub_plans=1))

    shown: Any = await api.read(f"/api/tool-calls/{run.opening_calls[0]}")

    assert [
        ("plan", str(run.root)),
        ("step", str(run.step)),
        ("thinkAct", str(run.think_act)),
        ("toolCall", str(run.opening_calls[0])),
    ] == [(item["kind"], item["id"]) for item in shown["lineage"]]
    assert [str(run.sub_plans[0])] == [plan["planId"] for plan in shown["subPlans"]]
    assert shown["arguments"] == '{"number":0}'


async def test_tool_calls_of_all_runs_are_filtered(api: Api) -> None:
    one = await api.record(sample_run(sub_plans=1))
    other = await api.record(sample_run(sub_plans=1))

    async def found(**parameters: str) -> set[str]:
        page: Any = await api.read("/api/tool-calls", **parameters)
        return {call["toolCallId"] for call in page["items"]}

    assert {str(one.failed_call), str(other.failed_call)} == await found(status="failed")
    assert {str(one.opening_calls[0]), str(other.opening_calls[0])} == await found(name="check")
    assert len(await found(providerCallId="call_0")) == 4
    assert {str(one.failed_call), str(one.opening_calls[0])} == await found(
        rootPlanId=str(one.root)
    )


async def test_list_of_tool_calls_truncates_large_results(api: Api) -> None:
    run = sample_run(sub_plans=0, finished=False)
    ids: dict[str, Any] = {"at": START, "root_plan_id": run.root, "plan_id": run.root}
    call = new_id()
    run.events.append(
        ToolCallFinished(
            **ids,
            step_id=run.step,
            tool_call_id=call,
            status=Status.SUCCEEDED,
            result="x" * 10**6,
        )
    )
    await api.record(run)

    response = await api.get("/api/tool-calls", rootPlanId=str(run.root))
    whole: Any = await api.read(f"/api/tool-calls/{call}")

    assert len(response.content) < 8_000
    [shown] = [item for item in response.json()["items"] if item["toolCallId"] == str(call)]
    assert shown["result"] == "x" * 2048
    assert (shown["resultBytes"], shown["resultTruncated"]) == (10**6, True)
    assert (shown["arguments"], shown["argumentsBytes"]) == (None, None)
    assert len(whole["result"]) == 10**6
    assert whole.keys() - {"lineage", "subPlans"} == {
        name for name in shown if not name.endswith(("Bytes", "Truncated"))
    }


async def test_think_act_contains_its_messages(api: Api) -> None:
    run = await api.record(sample_run())

    shown = await api.read(f"/api/think-acts/{run.think_act}")

    assert shown["messages"] == '[{"role":"user","content":"Review"}]'
    assert shown["thought"] == "I check everything at once."


async def test_missing_records_get_404_with_a_message(api: Api) -> None:
    nowhere = new_id()

    for path in ("runs", "plans", "tool-calls", "think-acts"):
        response = await api.get(f"/api/{path}/{nowhere}")
        problem = response.json()

        assert response.status_code == 404
        assert response.headers["content-type"] == "application/problem+json"
        assert problem["code"] == "not_found"
        assert str(nowhere) in problem["detail"]


async def test_tree_of_200_nested_sub_plans_is_returned(api: Api) -> None:
    run = sample_run(sub_plans=0, finished=False)
    plan, step = run.root, run.step
    for depth in range(1, 201):
        ids: dict[str, Any] = {"at": START, "root_plan_id": run.root, "plan_id": plan}
        call, below = new_id(), new_id()
        run.events.append(ToolCallStarted(**ids, step_id=step, tool_call_id=call, name="deeper"))
        ids["plan_id"] = below
        run.events.append(PlanStarted(**ids, parent_plan_id=plan, tool_call_id=call, depth=depth))
        plan, step = below, new_id()
    await api.record(run)

    response = await api.get(f"/api/plans/{run.root}/tree")

    assert response.status_code == 200
    assert response.text.count('"kind":"plan"') == 201
    assert '"cumulative":{"inputTokens":100,' in response.text
    assert '"toolCalls":201' in response.text


async def test_tree_of_a_run_without_root_plan_lists_unplaced_records(api: Api) -> None:
    run = sample_run(sub_plans=1)
    run.events[:] = [e for e in run.events if e.plan_id == run.sub_plans[0]]
    await api.record(run)

    tree: Any = await api.read(f"/api/plans/{run.root}/tree")

    assert tree["status"] == "unknown"
    assert [node["kind"] for node in tree["unplaced"]] == ["toolCall"]
    assert tree["unplaced"][0]["subPlans"][0]["planId"] == str(run.sub_plans[0])
