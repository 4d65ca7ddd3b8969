"""The ending of a record is merged as one tuple, and a record without an ending is open."""

from __future__ import annotations

from typing import Any

from tests.contract.moments import START, Moments
from tests.contract.stores import NewStore, Store, content, tree
from tracer.records import Status, new_id
from tracer.records.events import ErrorInfo, Event


async def test_call_with_two_endings_keeps_all_fields_of_one(
    new_store: NewStore,
) -> None:
    run = Moments()
    failed = run.call_finished(at=9, status=Status.FAILED, error=ErrorInfo(type="E", message="m"))
    succeeded = run.call_finished(at=4, result="fine")
    for order in ([failed, succeeded], [succeeded, failed]):
        store = new_store()
        for event in order:
            await store.record(event)
        call = (await store.reader.read_tool_call(run.call)).call
        assert (call.status, call.result, call.error_type) == (Status.SUCCEEDED, "fine", None)
        assert call.finished_at == succeeded.at


LESSER_AND_GREATER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"at": 5, "result": "z"}, {"at": 6, "result": "a"}),
    ({"result": None}, {"result": ""}),
    ({"result": "Z"}, {"result": "a"}),
    ({"result": "z"}, {"result": "é"}),
    ({"result": "\uffff"}, {"result": "🧪"}),
    ({"reason": None, "result": "z"}, {"reason": "denied", "result": None}),
    ({"status": Status.CANCELLED, "at": 9}, {"status": Status.FAILED, "at": 1}),
]


async def test_endings_are_compared_by_status_then_time_then_bytes(new_store: NewStore) -> None:
    failures = []
    for lesser, greater in LESSER_AND_GREATER:
        run = Moments()
        one, other = run.call_finished(**lesser), run.call_finished(**greater)
        expected = (other.status, other.at, other.reason, other.result)
        for order in ([one, other], [other, one]):
            store = new_store()
            for event in order:
                await store.record(event)
            call = (await store.reader.read_tool_call(run.call)).call
            stored = (call.status, call.finished_at, call.reason, call.result)
            if stored != expected:
                failures.append(f"{lesser} and {greater}: expected {expected}, stored {stored}")
    assert failures == []


async def test_start_received_after_the_end_fills_fields_and_keeps_the_status(store: Store) -> None:
    run = Moments()
    await store.record(run.call_finished(result="42"))
    await store.record(run.call_started(arguments="{}"))
    call = (await store.reader.read_tool_call(run.call)).call
    assert (call.status, call.name, call.arguments) == (Status.SUCCEEDED, "measure", "{}")
    assert call.started_at == run.call_started().at


async def test_retried_call_has_its_number_of_attempts_and_first_start_time(store: Store) -> None:
    run = Moments()
    await store.record(run.call_started(at=6, attempt=2), run.call_started(at=3, attempt=1))
    call = (await store.reader.read_tool_call(run.call)).call
    assert (call.attempt, call.started_at) == (2, run.call_started(at=3).at)


async def test_effective_arguments_are_those_of_the_latest_attempt(
    new_store: NewStore,
) -> None:
    run = Moments()
    first = run.call_started(attempt=1, effective_arguments='{"z":1}')
    second = run.call_started(attempt=2, effective_arguments='{"a":2}')
    unchanged = run.call_started(attempt=3)
    ended = run.call_finished(attempt=2)
    cases: list[tuple[list[Event], tuple[int, str | None]]] = [
        ([first, second, ended], (2, '{"a":2}')),
        ([ended, second, first], (2, '{"a":2}')),
        ([unchanged, second, first], (3, None)),
        ([ended, first], (2, None)),
    ]
    for events, expected in cases:
        store = new_store()
        for event in events:
            await store.record(event)
        call = (await store.reader.read_tool_call(run.call)).call
        assert (call.attempt, call.effective_arguments) == expected


async def test_hook_fields_are_merged_with_the_ending_that_is_kept(new_store: NewStore) -> None:
    run = Moments()
    timed_out = run.call_finished(status=Status.FAILED, reason="timed_out", still_running=True)
    answered = run.call_finished(
        short_circuited_by="cache", state_changes=[{"op": "remove", "path": ["a"]}]
    )
    for order in ([timed_out, answered], [answered, timed_out]):
        store = new_store()
        for event in order:
            await store.record(event)
        call = (await store.reader.read_tool_call(run.call)).call
        assert (call.status, call.short_circuited_by) == (Status.SUCCEEDED, "cache")
        assert call.state_changes == '[{"op":"remove","path":["a"]}]'
        assert call.still_running is None


async def test_still_running_ending_replaces_an_otherwise_equal_ending(
    new_store: NewStore,
) -> None:
    run = Moments()
    endings: list[Event] = [run.call_finished(), run.call_finished(still_running=True)]
    for order in (endings, endings[::-1]):
        store = new_store()
        for event in order:
            await store.record(event)
        assert (await store.reader.read_tool_call(run.call)).call.still_running is True


async def test_forged_argument_names_of_all_events_are_merged(new_store: NewStore) -> None:
    run = Moments()
    cases: list[Event] = [
        run.call_started(forged_arguments=("user_id", "é", "user_id")),
        run.call_finished(forged_arguments=("Token",)),
    ]
    for order in (cases, cases[::-1]):
        store = new_store()
        for event in order:
            await store.record(event)
        call = (await store.reader.read_tool_call(run.call)).call
        assert call.forged_arguments == ["Token", "user_id", "é"]
        revision = call.revision
        await store.record(run.call_started(forged_arguments=("é",)), run.call_finished())
        assert (await store.reader.read_tool_call(run.call)).call.revision == revision


async def test_planned_steps_reported_as_not_reached_are_cancelled(store: Store) -> None:
    run, reached = Moments(), new_id()
    steps = (run.planned(), run.planned().model_copy(update={"step_id": reached}))
    await store.record(run.plan_started(steps=steps))
    await store.record(run.plan_finished(status=Status.FAILED, not_reached_step_ids=(run.step,)))
    one, other = (await tree(store, run.root))["agentExecutions"]
    assert (one["status"], one["reason"]) == ("cancelled", "not_reached")
    assert other["status"] == "pending"


async def test_run_has_the_status_of_its_root_plan(store: Store) -> None:
    run = Moments()
    await store.record(run.plan_started(title="T", agent_name="nurse"))
    shown = await store.reader.read_run(run.root)
    assert (shown.title, shown.agent_name, shown.status) == ("T", "nurse", Status.RUNNING)
    assert shown.started_at == START
    await store.record(run.plan_finished(status=Status.FAILED, reason="step_failed"))
    shown = await store.reader.read_run(run.root)
    assert (shown.status, shown.reason) == (Status.FAILED, "step_failed")
    assert shown.finished_at == run.plan_finished().at


async def test_run_fields_of_two_starts_are_merged_independent_of_order(
    new_store: NewStore,
) -> None:
    run = Moments()
    starts: list[Event] = [
        run.plan_started(session_id="a", subject="p-1", tags=("x", "é", "x")),
        run.plan_started(session_id="b", traceparent="00-1", tags=("Z", "x")),
    ]
    for order in (starts, starts[::-1]):
        store = new_store()
        for event in order:
            await store.record(event)
        shown = await store.reader.read_run(run.root)
        assert (shown.session_id, shown.subject, shown.traceparent) == ("b", "p-1", "00-1")
        assert shown.tags == ["Z", "x", "é"]
        assert content(shown)["title"] is None
