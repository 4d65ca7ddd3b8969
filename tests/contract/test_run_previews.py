"""Previews in the run list: question, answer, failure, and open calls."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from tests.contract.moments import START, Moments
from tests.contract.stores import Store, tree
from tracer.records import Kind, Status, new_id
from tracer.records.events import ErrorInfo, Event, ThoughtRecorded
from tracer.records.pages import RunPreview
from tracer.store import RunFilter

TIMEOUT = ErrorInfo(type="TimeoutError", message="bank.example did not answer")
FAILED: dict[str, Any] = {"status": Status.FAILED, "error": TIMEOUT}


async def preview(store: Store, run: UUID) -> RunPreview:
    """Return a run as the list shows it, which is how it is read by itself."""
    [listed] = [
        each
        for each in (await store.reader.list_runs(RunFilter(), 100, None)).items
        if each.root_plan_id == run
    ]
    assert listed == await store.reader.read_run(run)
    return listed


def agent(run: Moments, plan: UUID, above: Moments | None, name: str) -> list[Event]:
    """Return the start of an agent with an open tool call; of a sub-agent if one is above it."""
    opened: dict[str, Any] = {"agent_name": name, "user_request": f"ask {name}"}
    if above is None:
        start: Event = run.plan_started(**opened)
    else:
        start = run.plan_started(
            plan=plan, parent_plan_id=above.root, tool_call_id=above.call, depth=1, **opened
        )
    return [start, run.step_started(plan=plan, agent_name=name)]


def parts(root: UUID) -> Moments:
    """Return ids of another step, round and call of a run."""
    return Moments(root=root)


async def test_preview_of_a_nested_failure_contains_only_its_origin(store: Store) -> None:
    top = Moments()
    below, deepest = parts(top.root), parts(top.root)
    ledger, bank = new_id(), new_id()
    in_ledger: dict[str, Any] = {"plan_id": ledger}
    in_bank: dict[str, Any] = {"plan_id": bank}
    await store.record(
        *agent(top, top.root, None, "billing"),
        top.call_started(name="ask_ledger"),
        top.sub_plan_started(ledger, top.call, agent_name="ledger"),
        below.step_started(plan=ledger),
        below.call_started(name="ask_bank", **in_ledger),
        top.sub_plan_started(bank, below.call, parent_plan_id=ledger, agent_name="bank"),
        deepest.step_started(plan=bank),
        deepest.call_started(name="http_get", **in_bank),
        *(
            deepest.call_finished(**FAILED).model_copy(update=in_bank),
            deepest.step_finished(**FAILED).model_copy(update=in_bank),
            top.plan_finished(plan=bank, **FAILED),
            below.call_finished(**FAILED).model_copy(update=in_ledger),
            below.step_finished(**FAILED).model_copy(update=in_ledger),
            top.plan_finished(plan=ledger, **FAILED),
            top.call_finished(**FAILED),
            top.step_finished(**FAILED),
            top.plan_finished(**FAILED),
        ),
    )
    shown = await preview(store, top.root)

    assert (shown.title, shown.request, shown.answer) == ("ask billing", "ask billing", None)
    assert (shown.sub_agents, shown.failures, shown.handled_failures) == (2, 1, 0)
    assert shown.failed_calls == 3
    assert shown.failure is not None
    assert (shown.failure.kind, shown.failure.id) == (Kind.TOOL_CALL, deepest.call)
    assert (shown.failure.name, shown.failure.depth) == ("http_get", 2)
    assert (shown.failure.error_type, shown.failure.error_message) == (
        TIMEOUT.type,
        TIMEOUT.message,
    )
    read = await tree(store, top.root)
    assert read["failureOrigins"] == [
        {"kind": "toolCall", "id": str(deepest.call), "isHandled": False}
    ]
    assert read["cumulative"]["failures"] == 1


async def test_preview_counts_handled_failures_separately(store: Store) -> None:
    run = Moments()
    await store.record(
        run.plan_started(user_request="\n  Plan a day.\nBy the sea."),
        run.step_started(),
        run.call_started(),
        run.call_finished(**FAILED),
        run.step_finished(),
    )
    still_open = await preview(store, run.root)
    await store.record(run.plan_finished(summary="Go to Brest. " * 40))
    shown = await preview(store, run.root)

    assert (still_open.failures, still_open.handled_failures) == (1, 0)
    assert (shown.title, shown.failure) == ("Plan a day.", None)
    assert (shown.failures, shown.handled_failures) == (1, 1)
    assert shown.answer == ("Go to Brest. " * 40)[:300]
    assert (await tree(store, run.root))["failureOrigins"][0]["isHandled"] is True


async def test_root_plan_is_the_origin_of_a_failure_if_no_call_failed(
    store: Store,
) -> None:
    run = Moments()
    await store.record(
        run.plan_started(agent_name="planner"), run.plan_finished(reason="timed_out", **FAILED)
    )
    shown = await preview(store, run.root)

    assert (shown.title, shown.failures) == (None, 1)
    assert shown.failure is not None
    assert (shown.failure.kind, shown.failure.id) == (Kind.PLAN, run.root)
    assert (shown.failure.reason, shown.failure.depth) == ("timed_out", 0)


async def test_preview_of_a_running_run_contains_the_call_that_it_waits_for(store: Store) -> None:
    run, other = Moments(), Moments()
    inner, sub_plan = parts(run.root), new_id()
    await store.record(
        run.plan_started(recorder_id=new_id()),
        run.step_started(),
        run.call_started(name="ask_ledger", at=3),
        run.sub_plan_started(sub_plan, run.call),
        inner.step_started(plan=sub_plan),
        inner.call_started(name="index_shard", at=5, arguments='{"shard": 1}', plan_id=sub_plan),
        other.plan_started(),
        other.step_started(),
        other.thought_started(requested_model="gpt-5"),
    )
    waits = await preview(store, run.root)

    assert waits.open_call is not None
    assert (waits.open_call.kind, waits.open_call.id) == (Kind.TOOL_CALL, inner.call)
    assert (waits.open_call.name, waits.open_call.arguments) == ("index_shard", '{"shard": 1}')
    assert waits.open_call.started_at == START + timedelta(seconds=5)
    assert waits.seen_at is not None
    thinks = await preview(store, other.root)
    assert thinks.open_call is not None
    assert (thinks.open_call.kind, thinks.open_call.name) == (Kind.THINK_ACT, "gpt-5")
    assert thinks.seen_at is None  # its program sends no heartbeats

    await store.record(
        ThoughtRecorded(
            at=START,
            root_plan_id=other.root,
            plan_id=other.root,
            step_id=other.step,
            think_act_id=other.think_act,
            status=Status.SUCCEEDED,
        ),
        other.plan_finished(),
    )
    ended = await preview(store, other.root)
    assert (ended.open_call, ended.seen_at) == (None, None)


async def test_preview_uses_the_request_as_title_only_if_there_is_no_title(store: Store) -> None:
    named, masked = Moments(), Moments()
    long = "word " * 100
    await store.record(
        named.plan_started(title="Weekly review", user_request="Review it"),
        masked.plan_started(user_request=long),
    )
    assert (await preview(store, named.root)).title == "Weekly review"
    title = (await preview(store, masked.root)).title
    assert title is not None
    assert title == long[:119].rstrip() + "…"


async def test_run_without_content_is_named_by_its_agent_and_actions(store: Store) -> None:
    run, marked = Moments(), Moments()
    await store.record(
        run.plan_started(agent_name="claude_code"),
        run.step_started(),
        run.call_started(name="Agent"),
        run.sub_plan_started(new_id(), run.call, agent_name="general-purpose"),
        *(run.call_started(at=4, name="Bash", tool_call_id=new_id()) for _ in range(3)),
        marked.plan_started(title="<command-name>/review</command-name>"),
    )

    assert (await preview(store, run.root)).label == "Claude Code · general-purpose, Bash × 3"
    assert (await preview(store, marked.root)).label == "/review"


async def test_model_call_without_a_cost_is_priced_by_the_list(store: Store) -> None:
    run = Moments()
    answered = ThoughtRecorded(
        at=START,
        root_plan_id=run.root,
        plan_id=run.root,
        step_id=run.step,
        think_act_id=run.think_act,
        status=Status.SUCCEEDED,
        model="gpt-4o",
        input_tokens=1_000,
        output_tokens=1_000,
    )
    given = answered.model_copy(update={"think_act_id": new_id(), "cost_usd": Decimal(1)})

    await store.record(run.plan_started(), run.step_started(), answered, given)

    found = await preview(store, run.root)
    assert found.unpriced_calls == 0
    assert found.cost_usd == 1 + Decimal("0.0125")
