"""The rows of a tree: which, in which order, and how much of each string."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sample_runs import sample_run
from tests.store_contract.moments import START, Moments
from tests.store_contract.stores import Store, tree
from tests.trees import Node, read_tree
from tracer.errors import RecordNotFound
from tracer.events import ErrorInfo
from tracer.ids import new_id, sequential_ids
from tracer.lineage import Payloads
from tracer.records import Kind
from tracer.status import Status


async def test_a_root_plan_s_tree_shows_each_record_under_its_parent(store: Store) -> None:
    run = sample_run(sub_plans=2)
    await store.record(*reversed(run.events))
    top = await tree(store, run.root)
    [step] = top["agentExecutions"]
    [think_act] = step["thinkActs"]
    ids = [call["toolCallId"] for call in think_act["toolCalls"]]
    assert ids == [str(run.failed_call), *map(str, run.opening_calls)]
    for call, sub_plan in zip(think_act["toolCalls"][1:], run.sub_plans, strict=True):
        [opened] = call["subPlans"]
        assert opened["planId"] == str(sub_plan)
        assert opened["parentActToolCall"]["toolCallId"] == call["toolCallId"]
        assert opened["parentActToolCall"]["arguments"] == call["arguments"]
    assert top["unplaced"] == []
    assert (top["cumulative"]["toolCalls"], top["cumulative"]["failures"]) == (3, 1)


async def test_a_row_says_what_went_wrong_how_long_it_took_and_when(store: Store) -> None:
    run = sample_run(sub_plans=1)
    await store.record(*run.events)
    rows = await read_tree(store.reader, run.root, Payloads.PREVIEW)
    failed = next(row for row in rows.tool_calls if row["toolCallId"] == str(run.failed_call))
    assert failed["error"] == {
        "type": "ValueError",
        "message": "the cuff is loose",
        "stack": "…",
    }
    assert failed["durationMs"] == 10.0
    assert failed["startedAt"].tzinfo is not None
    assert failed["startedAt"].utcoffset() == START.utcoffset()
    assert rows.revision == await store.reader.read_revision(Kind.RUN, run.root)


async def test_siblings_stand_in_the_order_of_position_then_id(store: Store) -> None:
    ids = sequential_ids()
    run = Moments(root=ids(), step=ids())
    late, early, batch = ids(), ids(), [ids() for _ in range(3)]
    await store.record(
        run.call_started(at=1, tool_call_id=late, position=7),
        run.call_started(at=9, tool_call_id=early, position=0),
        *(run.call_started(tool_call_id=call) for call in reversed(batch)),
    )
    rows = await read_tree(store.reader, run.root, Payloads.NONE)
    expected = [str(call) for call in (early, late, *batch)]
    assert [row["toolCallId"] for row in rows.tool_calls] == expected


LONG = "字" * 1000


@pytest.mark.parametrize(
    ("payloads", "shown", "is_cut"),
    [
        (Payloads.NONE, None, True),
        (Payloads.PREVIEW, "字" * 682, True),
        (Payloads.FULL, LONG, False),
    ],
)
async def test_payloads_say_how_much_of_a_long_string_comes(
    store: Store, payloads: Payloads, shown: str | None, is_cut: bool
) -> None:
    run = Moments()
    error = ErrorInfo(type="E", message=LONG, stack=LONG)
    await store.record(
        run.plan_started(user_request=LONG),
        run.call_finished(status=Status.FAILED, result=LONG, error=error),
    )
    rows = await read_tree(store.reader, run.root, payloads)
    plan, call = rows.plans[0], rows.tool_calls[0]
    assert (plan["userRequest"], plan["userRequestBytes"], plan["userRequestTruncated"]) == (
        *(shown, 3000),
        is_cut,
    )
    assert (call["result"], call["resultBytes"], call["resultTruncated"]) == (shown, 3000, is_cut)
    assert call["error"] == {"type": "E", "message": shown, "stack": shown}
    nothing = (call["arguments"], call["argumentsBytes"], call["argumentsTruncated"])
    assert nothing == (None, None, False)


@pytest.mark.parametrize("payloads", list(Payloads))
async def test_a_call_shows_what_hooks_did_to_it_the_long_parts_as_payloads(
    store: Store, payloads: Payloads
) -> None:
    run = Moments()
    await store.record(
        run.call_started(
            position=0, effective_arguments=LONG, forged_arguments=("user_id", "token")
        ),
        run.call_finished(short_circuited_by="cache", state_changes=[LONG], still_running=True),
        run.call_started(tool_call_id=new_id(), position=1),
    )
    told, untold = (await read_tree(store.reader, run.root, payloads)).tool_calls
    assert (told["forgedArguments"], told["shortCircuitedBy"]) == (["token", "user_id"], "cache")
    assert told["stillRunning"] is True
    for field, size in (("effectiveArguments", 3000), ("stateChanges", 6004)):
        shown = told[field]
        assert (shown is None) is (payloads is Payloads.NONE)
        assert told[f"{field}Bytes"] == size
        assert told[f"{field}Truncated"] is (payloads is not Payloads.FULL)
        assert (untold[field], untold[f"{field}Bytes"], untold[f"{field}Truncated"]) == (
            *(None, None),
            False,
        )
    assert (untold["forgedArguments"], untold["shortCircuitedBy"]) == ([], None)
    assert untold["stillRunning"] is None


@pytest.mark.parametrize("payloads", list(Payloads))
async def test_short_and_empty_strings_are_never_cut_short_of_what_they_are(
    store: Store, payloads: Payloads
) -> None:
    run = Moments()
    await store.record(run.call_finished(result=""), run.call_started(arguments="a" * 2048))
    [call] = (await read_tree(store.reader, run.root, payloads)).tool_calls
    assert (call["resultBytes"], call["resultTruncated"]) == (0, False)
    assert call["argumentsTruncated"] is (payloads in (Payloads.NONE, Payloads.DIGEST))


async def test_a_text_that_says_how_long_it_was_is_taken_at_its_word(store: Store) -> None:
    run = Moments()
    size, other = 999_999_999_999_999, "[masked: rest of 7 bytes]\n"
    await store.record(
        run.call_started(arguments=f"[masked: payload of {size} bytes]"),
        run.call_finished(result=other),
    )
    [call] = (await read_tree(store.reader, run.root, Payloads.PREVIEW)).tool_calls
    assert (call["argumentsBytes"], call["resultBytes"]) == (size, len(other))


async def test_a_sub_plan_s_tree_is_that_plan_and_what_is_below_it(store: Store) -> None:
    run, sub_plan, below, call, step = Moments(), new_id(), new_id(), new_id(), new_id()
    await store.record(
        run.plan_started(steps=(run.planned(),)),
        run.call_started(name="opens", arguments='{"of":"sub"}'),
        run.sub_plan_started(sub_plan, run.call),
        run.call_started(plan_id=sub_plan, step_id=step, tool_call_id=call, name="inner"),
        run.sub_plan_started(below, call, parent_plan_id=sub_plan, depth=2),
        run.call_started(tool_call_id=new_id(), name="elsewhere"),
    )
    rows = await read_tree(store.reader, sub_plan, Payloads.FULL)
    assert {row["planId"] for row in rows.plans} == {str(sub_plan), str(below)}
    assert [row["stepId"] for row in rows.steps] == [str(step)]
    assert [row["name"] for row in rows.tool_calls] == ["inner"]
    assert rows.opener is not None
    assert (rows.opener["name"], rows.opener["stepId"]) == ("opens", str(run.step))
    top = await tree(store, sub_plan)
    assert top["parentActToolCall"]["arguments"] == '{"of":"sub"}'
    assert top["cumulative"]["toolCalls"] == 1


async def test_plans_that_open_each_other_in_a_circle_are_read_to_the_end(store: Store) -> None:
    run, one, other = Moments(), new_id(), new_id()
    calls, steps = [new_id(), new_id()], [new_id(), new_id()]
    await store.record(
        run.plan_started(),
        run.call_started(plan_id=one, step_id=steps[0], tool_call_id=calls[0]),
        run.call_started(plan_id=other, step_id=steps[1], tool_call_id=calls[1]),
        run.sub_plan_started(one, calls[1], parent_plan_id=other),
        run.sub_plan_started(other, calls[0], parent_plan_id=one),
    )
    rows = await read_tree(store.reader, one, Payloads.NONE)
    assert {row["planId"] for row in rows.plans} == {str(one), str(other)}
    assert len(rows.tool_calls) == 2
    assert rows.opener is not None
    assert count((await tree(store, run.root))["unplaced"], "plan") == 2


def count(nodes: list[Node], kind: str) -> int:
    below: list[Any] = [
        child
        for node in nodes
        for children in ("agentExecutions", "thinkActs", "toolCalls", "subPlans")
        for child in node.get(children, ())
    ]
    here = len([node for node in nodes if node["kind"] == kind])
    return here + (count(below, kind) if below else 0)


async def test_of_plans_that_share_an_id_the_one_that_is_no_placeholder_is_read(
    store: Store,
) -> None:
    ids = sequential_ids()
    first, second = Moments(root=ids()), Moments(root=ids())
    shared = ids()
    await store.record(
        first.call_started(plan_id=shared),
        second.sub_plan_started(shared, second.call, title="The real one"),
    )
    assert (await store.reader.read_plan(shared)).plan.title == "The real one"
    rows = await read_tree(store.reader, shared, Payloads.NONE)
    assert rows.plans[0]["rootPlanId"] == str(second.root)
    await store.record(first.sub_plan_started(shared, first.call, title="Now both"))
    assert (await store.reader.read_plan(shared)).plan.root_plan_id == first.root


async def test_a_plan_that_does_not_exist_has_no_tree(store: Store) -> None:
    with pytest.raises(RecordNotFound):
        await read_tree(store.reader, new_id(), Payloads.NONE)


async def test_a_plan_by_itself_has_a_tree(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started(title="Alone"))
    top = await tree(store, run.root, Payloads.NONE)
    assert (top["title"], top["agentExecutions"], top["unplaced"]) == ("Alone", [], [])
