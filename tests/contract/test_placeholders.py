"""A record that is referenced before it arrives is stored as a placeholder and filled later."""

from __future__ import annotations

from tests.contract.moments import Moments
from tests.contract.stores import Store, content, tree
from tracer.records import Status, new_id
from tracer.store import RunFilter


async def test_event_without_known_parents_creates_them_as_placeholders(store: Store) -> None:
    run = Moments()
    await store.record(run.call_finished(think_act_id=run.think_act, result="42"))
    plan = (await store.reader.read_plan(run.root)).plan
    think_act = await store.reader.read_think_act(run.think_act)
    assert plan.status is think_act.status is Status.UNKNOWN
    assert think_act.step_id == run.step
    call = (await store.reader.read_tool_call(run.call)).call
    assert (call.status, call.result, call.name) == (Status.SUCCEEDED, "42", None)


async def test_placeholder_gets_its_fields_when_its_record_arrives(store: Store) -> None:
    run = Moments()
    await store.record(run.call_started(think_act_id=run.think_act))
    await store.record(run.thought_started(position=3, messages='["hello"]'))
    await store.record(run.plan_started(title="Late"))
    think_act = await store.reader.read_think_act(run.think_act)
    assert (think_act.status, think_act.position) == (Status.RUNNING, 3)
    assert think_act.messages == '["hello"]'
    assert (await store.reader.read_plan(run.root)).plan.title == "Late"


async def test_run_without_root_plan_is_listed_and_can_be_read(store: Store) -> None:
    run = Moments()
    await store.record(run.call_started())
    [listed] = (await store.reader.list_runs(RunFilter(), 10, None)).items
    assert (listed.root_plan_id, listed.status, listed.tool_calls) == (run.root, "unknown", 1)
    assert listed == await store.reader.read_run(run.root)
    node = await tree(store, run.root)
    assert node["agentExecutions"][0]["toolCalls"][0]["toolCallId"] == str(run.call)


async def test_sub_plan_stored_before_its_opening_call_has_a_placeholder_call(store: Store) -> None:
    run, sub_plan = Moments(), new_id()
    await store.record(run.sub_plan_started(sub_plan, run.call, title="Sub"))
    found = await store.reader.read_plan(sub_plan)
    assert found.opener is not None
    assert (found.opener.tool_call_id, found.opener.status) == (run.call, Status.UNKNOWN)
    [unplaced] = (await tree(store, run.root))["unplaced"]
    assert unplaced["toolCallId"] == str(run.call)
    assert unplaced["subPlans"][0]["planId"] == str(sub_plan)


async def test_end_of_a_sub_plan_may_be_stored_before_its_start(
    store: Store,
) -> None:
    run, sub_plan = Moments(), new_id()
    await store.record(run.plan_finished(plan=sub_plan, summary="done"))
    plan = (await store.reader.read_plan(sub_plan)).plan
    assert (plan.status, plan.parent_plan_id) == (Status.SUCCEEDED, None)
    await store.record(run.sub_plan_started(sub_plan, run.call, title="Sub"))
    plan = (await store.reader.read_plan(sub_plan)).plan
    assert (plan.status, plan.parent_plan_id, plan.summary) == ("succeeded", run.root, "done")
    assert plan.title == "Sub"


async def test_event_that_refers_to_a_known_plan_does_not_change_the_plan(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started(title="Known", steps=(run.planned(agent_name="nurse"),)))
    before = content((await store.reader.read_plan(run.root)).plan)
    await store.record(run.call_started())
    assert content((await store.reader.read_plan(run.root)).plan) == before
