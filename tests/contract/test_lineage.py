"""The lineage of a tool call, from the root plan down, and links between plans and calls."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.contract.moments import Moments
from tests.contract.stores import Store
from tests.sample_runs import sample_run
from tracer.errors import RecordNotFound
from tracer.records import Kind, Status, new_id, sequential_ids
from tracer.records.events import Event
from tracer.records.merge import RULES
from tracer.records.record_classes import (
    ActToolInfo,
    AgentExecutionRecord,
    PlanExecutionRecord,
    ThinkActRecord,
)
from tracer.store import AnyRecord

ID_FIELDS = {
    PlanExecutionRecord: RULES[Kind.PLAN].id_field,
    AgentExecutionRecord: RULES[Kind.STEP].id_field,
    ThinkActRecord: RULES[Kind.THINK_ACT].id_field,
    ActToolInfo: RULES[Kind.TOOL_CALL].id_field,
}


def id_of(record: AnyRecord) -> UUID:
    id_: UUID = getattr(record, ID_FIELDS[type(record)])
    return id_


async def path(store: Store, call: UUID) -> list[UUID]:
    return [id_of(record) for record in (await store.reader.read_tool_call(call)).lineage]


async def test_lineage_leads_from_the_root_plan_to_the_tool_call(store: Store) -> None:
    run, sub_plan, step, inner = Moments(), new_id(), new_id(), new_id()
    await store.record(
        run.call_started(plan_id=sub_plan, step_id=step, tool_call_id=inner),
        run.sub_plan_started(sub_plan, run.call),
        run.call_started(think_act_id=run.think_act),
        run.plan_started(),
    )
    assert await path(store, inner) == [
        *(run.root, run.step, run.think_act, run.call),
        *(sub_plan, step, inner),
    ]
    found = await store.reader.read_tool_call(run.call)
    assert found.lineage[-1] == found.call
    assert [plan.plan_id for plan in found.sub_plans] == [sub_plan]


async def test_lineage_of_a_batch_item_leads_through_the_batch_tool_call(store: Store) -> None:
    run, item = Moments(), new_id()
    await store.record(
        run.call_started(think_act_id=run.think_act),
        run.call_started(
            tool_call_id=item, parent_tool_call_id=run.call, think_act_id=run.think_act, position=1
        ),
    )
    assert await path(store, item) == [run.root, run.step, run.think_act, run.call, item]


async def test_lineage_of_a_hand_off_leads_through_the_step_that_opened_it(store: Store) -> None:
    run, handed, step = Moments(), new_id(), new_id()
    await store.record(
        run.plan_started(steps=(run.planned(),)),
        run.plan_started(plan=handed, parent_plan_id=run.root, opened_by_step_id=run.step),
        run.call_started(plan_id=handed, step_id=step),
    )
    assert await path(store, run.call) == [run.root, run.step, handed, step, run.call]
    assert (await store.reader.read_plan(handed)).opener is None


async def test_lineage_starts_at_the_topmost_known_ancestor(store: Store) -> None:
    run, sub_plan, step = Moments(), new_id(), new_id()
    await store.record(run.call_started(plan_id=sub_plan, step_id=step))
    assert await path(store, run.call) == [sub_plan, step, run.call]
    opened, opener = new_id(), new_id()
    await store.record(run.sub_plan_started(opened, opener))
    assert await path(store, opener) == [opener]
    assert (await store.reader.read_tool_call(opener)).call.status is Status.UNKNOWN


async def test_lineage_of_plans_that_open_each_other_contains_each_once(store: Store) -> None:
    run, one, other = Moments(), new_id(), new_id()
    calls, steps = [new_id(), new_id()], [new_id(), new_id()]
    await store.record(
        run.call_started(plan_id=one, step_id=steps[0], tool_call_id=calls[0]),
        run.call_started(plan_id=other, step_id=steps[1], tool_call_id=calls[1]),
        run.sub_plan_started(one, calls[1], parent_plan_id=other),
        run.sub_plan_started(other, calls[0], parent_plan_id=one),
    )
    assert await path(store, calls[0]) == [
        *(other, steps[1], calls[1]),
        *(one, steps[0], calls[0]),
    ]
    items = [new_id(), new_id()]
    await store.record(
        run.call_started(tool_call_id=items[0], parent_tool_call_id=items[1]),
        run.call_started(tool_call_id=items[1], parent_tool_call_id=items[0]),
    )
    assert await path(store, items[0]) == [items[1], items[0]]


async def test_sub_plans_of_a_call_are_sorted_by_position_then_id(store: Store) -> None:
    ids = sequential_ids()
    run, plans = Moments(root=ids(), call=ids()), [ids() for _ in range(3)]
    await store.record(
        run.sub_plan_started(plans[0], run.call, position=1),
        run.sub_plan_started(plans[2], run.call, position=0),
        run.sub_plan_started(plans[1], run.call, position=0),
    )
    opened = (await store.reader.read_tool_call(run.call)).sub_plans
    assert [plan.plan_id for plan in opened] == [plans[1], plans[2], plans[0]]


async def test_every_sub_plan_contains_the_call_that_opened_it(store: Store) -> None:
    run = sample_run(sub_plans=5)
    await store.record(*run.events)
    for sub_plan, call in zip(run.sub_plans, run.opening_calls, strict=True):
        found = await store.reader.read_plan(sub_plan)
        assert found.opener is not None
        assert found.opener.tool_call_id == call
    assert (await store.reader.read_plan(run.root)).opener is None


async def test_claims_of_a_run_are_the_union_of_those_of_its_events(store: Store) -> None:
    run, calls, runs = Moments(), sorted([new_id(), new_id()]), [new_id()]
    await store.record(run.plan_started(follows_calls=(calls[1],), follows_keys=("b", "a")))
    await store.record(run.plan_started(follows_calls=tuple(calls), follows_runs=tuple(runs)))
    await store.record(run.plan_started(follows_keys=("c", "a"), work_keys=("w",)))

    found = await store.reader.read_run(run.root)

    assert (found.follows_calls, found.follows_runs) == (calls, runs)
    assert (found.follows_keys, found.work_keys) == (["a", "b", "c"], ["w"])


async def test_call_that_continued_a_plan_contains_the_id_of_the_plan(store: Store) -> None:
    run, plan, call = Moments(), new_id(), new_id()
    await store.record(
        run.sub_plan_started(plan, run.call),
        run.call_started(tool_call_id=call, continued_plan_id=plan),
    )

    assert (await store.reader.read_tool_call(call)).call.continued_plan_id == plan


async def test_reading_a_missing_record_raises_not_found(store: Store) -> None:
    with pytest.raises(RecordNotFound, match="tool call"):
        await store.reader.read_tool_call(new_id())
    with pytest.raises(RecordNotFound, match="think-act"):
        await store.reader.read_think_act(new_id())
    with pytest.raises(RecordNotFound, match="plan"):
        await store.reader.read_plan(new_id())
    with pytest.raises(RecordNotFound, match="run"):
        await store.reader.read_run(new_id())


async def test_lineage_of_a_deep_sub_plan_is_complete(store: Store) -> None:
    run = Moments()
    plan, call = run.root, run.call
    events: list[Event] = [run.plan_started(), run.call_started()]
    for depth in range(1, 101):
        above, plan, opener, call = plan, new_id(), call, new_id()
        events += [
            run.sub_plan_started(plan, opener, parent_plan_id=above, depth=depth),
            run.call_started(plan_id=plan, step_id=new_id(), tool_call_id=call),
        ]
    await store.record(*events)
    assert len(await path(store, call)) == 303
