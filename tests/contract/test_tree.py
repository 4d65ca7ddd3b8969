"""The rows of a tree: their selection, their order, and the truncation of long strings."""

from __future__ import annotations

from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from tests.contract.moments import START, Moments
from tests.contract.stores import Store, tree
from tests.otel.made_traces import agent, spans_from, tool
from tests.sample_runs import sample_run
from tests.trees import Node, read_tree
from tracer.errors import RecordNotFound
from tracer.lineage import Payloads
from tracer.records import Kind, Status, new_id, sequential_ids
from tracer.records.events import ErrorInfo


async def test_tree_of_a_root_plan_has_each_record_below_its_parent(store: Store) -> None:
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


async def test_tree_row_of_a_failed_call_has_its_start_duration_and_error(store: Store) -> None:
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


async def test_error_without_a_type_is_shown_with_its_message(store: Store) -> None:
    spans = spans_from(agent(1, "nurse"), tool(2, "measure", parent=1, failed="the cuff is loose"))
    await store.record_spans(spans)
    run_id = UUID(bytes=spans[0].trace_id)
    digest = sha256(b"the cuff is loose").hexdigest()
    expected: list[tuple[Payloads, str | None]] = [
        (Payloads.NONE, None),
        (Payloads.PREVIEW, "the cuff is loose"),
        (Payloads.FULL, "the cuff is loose"),
        (Payloads.DIGEST, digest),
        (Payloads.COMPARED, "the cuff is loose"),
    ]
    for payloads, message in expected:
        [call] = (await read_tree(store.reader, run_id, payloads)).tool_calls
        assert call["error"] == {"type": None, "message": message, "stack": None}, payloads


async def test_siblings_are_sorted_by_position_then_id(store: Store) -> None:
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


async def test_payloads_argument_sets_how_much_of_a_long_string_is_returned(store: Store) -> None:
    run = Moments()
    error = ErrorInfo(type="E", message=LONG, stack=LONG)
    await store.record(
        run.plan_started(user_request=LONG),
        run.call_finished(status=Status.FAILED, result=LONG, error=error),
    )
    expected: list[tuple[Payloads, str | None, bool]] = [
        (Payloads.NONE, None, True),
        (Payloads.PREVIEW, "字" * 682, True),
        (Payloads.EXCERPT, "字" * 682, True),
        (Payloads.FULL, LONG, False),
    ]
    for payloads, text, is_cut in expected:
        rows = await read_tree(store.reader, run.root, payloads)
        plan, call = rows.plans[0], rows.tool_calls[0]
        request = [plan[f"userRequest{field}"] for field in ("", "Bytes", "Truncated")]
        assert request == [text, 3000, is_cut], payloads
        result = [call[f"result{field}"] for field in ("", "Bytes", "Truncated")]
        shown = "字" * 42 if payloads is Payloads.EXCERPT else text
        assert result == [shown, 3000, is_cut], payloads
        assert call["error"] == {"type": "E", "message": text, "stack": text}, payloads
        arguments = [call[f"arguments{field}"] for field in ("", "Bytes", "Truncated")]
        assert arguments == [None, None, False], payloads


async def test_tree_truncates_long_values_that_hooks_added_to_a_call(store: Store) -> None:
    run = Moments()
    await store.record(
        run.call_started(
            position=0, effective_arguments=LONG, forged_arguments=("user_id", "token")
        ),
        run.call_finished(short_circuited_by="cache", state_changes=[LONG], still_running=True),
        run.call_started(tool_call_id=new_id(), position=1),
    )
    for payloads in Payloads:
        hooked, plain = (await read_tree(store.reader, run.root, payloads)).tool_calls
        assert hooked["forgedArguments"] == ["token", "user_id"], payloads
        assert (hooked["shortCircuitedBy"], hooked["stillRunning"]) == ("cache", True), payloads
        for field, size in (("effectiveArguments", 3000), ("stateChanges", 6004)):
            assert (hooked[field] is None) is (payloads is Payloads.NONE), payloads
            assert hooked[f"{field}Bytes"] == size, payloads
            assert hooked[f"{field}Truncated"] is (payloads is not Payloads.FULL), payloads
            unset = [plain[f"{field}{part}"] for part in ("", "Bytes", "Truncated")]
            assert unset == [None, None, False], payloads
        assert (plain["forgedArguments"], plain["shortCircuitedBy"]) == ([], None), payloads
        assert plain["stillRunning"] is None, payloads


async def test_short_and_empty_payloads_are_not_truncated(store: Store) -> None:
    run = Moments()
    await store.record(run.call_finished(result=""), run.call_started(arguments="a" * 2048))
    for payloads in Payloads:
        [call] = (await read_tree(store.reader, run.root, payloads)).tool_calls
        assert (call["resultBytes"], call["resultTruncated"]) == (0, False), payloads
        is_cut = payloads in (Payloads.NONE, Payloads.DIGEST, Payloads.COMPARED)
        assert call["argumentsTruncated"] is is_cut, payloads


async def test_masked_payload_has_the_size_of_the_original(store: Store) -> None:
    run = Moments()
    size, other = 999_999_999_999_999, "[masked: rest of 7 bytes]\n"
    await store.record(
        run.call_started(arguments=f"[masked: payload of {size} bytes]"),
        run.call_finished(result=other),
    )
    [call] = (await read_tree(store.reader, run.root, Payloads.PREVIEW)).tool_calls
    assert (call["argumentsBytes"], call["resultBytes"]) == (size, len(other))


async def test_tree_of_a_sub_plan_contains_only_its_descendants(store: Store) -> None:
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


async def test_tree_of_plans_that_open_each_other_contains_both(store: Store) -> None:
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


async def test_plan_is_preferred_to_a_placeholder_with_the_same_id(
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


async def test_tree_of_a_missing_plan_raises_not_found(store: Store) -> None:
    with pytest.raises(RecordNotFound):
        await read_tree(store.reader, new_id(), Payloads.NONE)


async def test_tree_of_a_plan_without_steps_is_empty(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started(title="Alone"))
    top = await tree(store, run.root, Payloads.NONE)
    assert (top["title"], top["agentExecutions"], top["unplaced"]) == ("Alone", [], [])
