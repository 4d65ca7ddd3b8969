"""Open records are abandoned when their recorder's lease expires, and never before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import pytest

from tests.contract.living import Living, http_living, postgres_living
from tests.contract.moments import START, Moments
from tests.contract.stores import Projecting
from tests.contract.test_changes import Watched, read_rows
from tests.otel.made_traces import TRACE_ID, agent, spans_from, tool
from tests.trees import read_tree
from tracer.errors import RecordNotFound
from tracer.lineage import Payloads
from tracer.records import Kind, Status, new_id
from tracer.records.events import Event
from tracer.records.pages import TimeRange
from tracer.storage.postgres import open_pool
from tracer.store import RunFilter, ToolCallFilter

RUN_OF_SPANS = UUID(TRACE_ID)


@pytest.fixture(
    params=[
        ("postgres", Projecting.AFTER_WRITES),
        pytest.param(("postgres", Projecting.BEFORE_READS), marks=pytest.mark.thorough),
        pytest.param(("http", Projecting.AFTER_WRITES), marks=pytest.mark.thorough),
    ],
    ids="-".join,
)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Living]:
    kind, when = request.param
    async with open_pool(request.getfixturevalue("database_url")) as pool:
        if kind == "http":
            yield await http_living(pool)
        else:
            yield await postgres_living(pool, when=when)


def by(recorder_id: UUID | None, *events: Event) -> list[Event]:
    """Return events as a recorder sends them."""
    return [event.model_copy(update={"recorder_id": recorder_id}) for event in events]


async def in_flight(store: Living, recorder_id: UUID | None) -> Moments:
    """Record a run with an open call."""
    run, at = Moments(), store.clock.seconds
    await store.record(
        *by(
            recorder_id,
            run.plan_started(at, steps=(run.planned(),)),
            run.step_started(at),
            run.thought_started(at),
            run.call_started(at),
        )
    )
    return run


async def statuses(store: Living, run: Moments) -> dict[str, str]:
    """Return what is shown of a run and of all its records."""
    rows = await read_tree(store.reader, run.root, Payloads.NONE)
    return {
        "run": (await store.reader.read_run(run.root)).shown_status,
        "plan": rows.plans[0]["status"],
        "step": rows.steps[0]["status"],
        "round": rows.think_acts[0]["status"],
        "call": rows.tool_calls[0]["status"],
    }


def all_are(status: str) -> dict[str, str]:
    return dict.fromkeys(("run", "plan", "step", "round", "call"), status)


async def test_open_records_are_abandoned_when_the_lease_expires(
    store: Living,
) -> None:
    run = await in_flight(store, new_id())
    await store.pass_time(59)
    assert await statuses(store, run) == all_are("running")

    await store.pass_time(1)

    assert await statuses(store, run) == all_are("abandoned")
    ran_out = START + timedelta(seconds=60)
    assert (await store.reader.read_run(run.root)).abandoned_at == ran_out
    assert (await store.reader.read_tool_call(run.call)).call.abandoned_at == ran_out


async def test_abandoned_calls_are_counted_and_listed_in_statistics(store: Living) -> None:
    run = await in_flight(store, new_id())
    await store.pass_time(60)

    history = await store.reader.read_tool_history("measure", TimeRange())

    assert (history.stats.calls, history.stats.abandoned, history.stats.failure_rate) == (
        1,
        1,
        None,
    )
    [call] = history.latest_abandoned
    assert (call.tool_call_id, call.status, call.duration_ms) == (run.call, "abandoned", None)


async def test_expired_lease_changes_no_ended_records_and_no_other_recorders(store: Living) -> None:
    dead, alive = new_id(), new_id()
    run = await in_flight(store, dead)
    other = new_id()
    await store.record(
        *by(dead, run.call_finished(0)),
        *by(alive, run.call_started(0, tool_call_id=other)),
    )
    await store.pass_time(30)
    await store.writer.renew(alive)
    await store.pass_time(31)

    calls = (await store.reader.list_tool_calls(ToolCallFilter(), 9, None)).items
    shown = {call.tool_call_id: call.shown_status for call in calls}
    assert shown == {run.call: "succeeded", other: "running"}
    assert (await store.reader.read_run(run.root)).shown_status == "abandoned"


@pytest.mark.parametrize("sign", ["a renewal", "an event", "an event of another run"])
async def test_lease_is_kept_by_heartbeats_and_events_of_the_recorder(
    store: Living, sign: str
) -> None:
    recorder_id = new_id()
    run, another = await in_flight(store, recorder_id), Moments()

    for _ in range(4):
        await store.pass_time(50)
        at = store.clock.seconds
        if sign == "a renewal":
            await store.writer.renew(recorder_id)
        elif sign == "an event":
            await store.record(*by(recorder_id, run.call_started(at, attempt=2)))
        else:
            await store.record(*by(recorder_id, another.plan_started(at)))

    assert await statuses(store, run) == all_are("running")


@pytest.mark.parametrize("sign", ["a renewal", "an event"])
async def test_heartbeat_or_event_of_a_dead_recorder_revives_its_records(
    store: Living, sign: str
) -> None:
    recorder_id = new_id()
    run = await in_flight(store, recorder_id)
    await store.pass_time(500)
    assert await statuses(store, run) == all_are("abandoned")

    if sign == "a renewal":
        await store.writer.renew(recorder_id)
    else:
        await store.record(*by(recorder_id, Moments().plan_started(500)))
    await store.pass_time(1)

    assert await statuses(store, run) == all_are("running")
    assert (await store.reader.read_run(run.root)).abandoned_at is None
    await store.pass_time(60)
    assert await statuses(store, run) == all_are("abandoned"), "it died again"


async def test_ending_replaces_the_status_abandoned(store: Living) -> None:
    recorder_id = new_id()
    run = await in_flight(store, recorder_id)
    await store.pass_time(100)

    await store.record(*by(recorder_id, run.call_finished(5), run.plan_finished(6)))

    shown = await statuses(store, run)
    assert (shown["call"], shown["plan"], shown["run"]) == ("succeeded",) * 3
    assert (await store.reader.read_run(run.root)).abandoned_at is None
    await store.pass_time(1000)
    shown = await statuses(store, run)
    assert (shown["call"], shown["plan"], shown["step"]) == ("succeeded", "succeeded", "abandoned")


async def test_record_continued_by_another_recorder_uses_its_lease(store: Living) -> None:
    first, second = new_id(), new_id()
    run = await in_flight(store, first)
    await store.pass_time(100)
    await store.record(*by(second, run.call_started(100, attempt=2)))
    shown = await statuses(store, run)
    assert (shown["call"], shown["plan"]) == ("running", "abandoned")

    await store.pass_time(30)
    await store.writer.renew(first)
    await store.pass_time(30)

    shown = await statuses(store, run)
    assert (shown["call"], shown["plan"]) == ("abandoned", "running")


async def test_late_events_from_the_spool_do_not_renew_a_lease(store: Living) -> None:
    recorder_id = new_id()
    run = await in_flight(store, recorder_id)
    await store.pass_time(300)
    other = new_id()

    await store.record(*by(recorder_id, run.call_started(20, tool_call_id=other)))
    await store.pass_time(1)

    calls = (await store.reader.list_tool_calls(ToolCallFilter(), 9, None)).items
    assert {call.shown_status for call in calls} == {"abandoned"}
    assert {call.abandoned_at for call in calls} == {START + timedelta(seconds=80)}


async def test_events_renew_the_lease_of_a_recorder_with_a_wrong_clock(
    store: Living,
) -> None:
    recorder_id, run = new_id(), Moments()
    for at in range(0, 300, 50):
        wrong = by(recorder_id, run.call_started(at - 86_400))
        await store.record(*wrong)
        await store.pass_time(50)

    assert (await store.reader.read_tool_call(run.call)).call.shown_status == "running"


async def test_recorder_whose_clock_was_in_the_year_8999_can_still_record(store: Living) -> None:
    recorder_id = new_id()
    wrong = int((START.replace(year=8999) - START).total_seconds())
    for at in (wrong, 0):
        await store.record(*by(recorder_id, Moments().plan_started(at)))
        await store.pass_time(30)


async def test_late_first_event_of_a_recorder_starts_a_full_lease(store: Living) -> None:
    run = Moments()
    await store.pass_time(1000)
    await store.record(*by(new_id(), run.call_started(3)))

    await store.pass_time(59)
    assert (await store.reader.read_tool_call(run.call)).call.shown_status == "running"
    await store.pass_time(1)
    assert (await store.reader.read_tool_call(run.call)).call.shown_status == "abandoned"


async def test_recorders_get_a_full_lease_after_the_server_stood_still(store: Living) -> None:
    recorder_id = new_id()
    run = await in_flight(store, recorder_id)

    store.clock.move(600)  # nobody looked: the server, its database or the machine stood still
    await store.reaper.run_once()
    await store.pass_time(59)
    assert await statuses(store, run) == all_are("running")

    await store.pass_time(1)
    assert await statuses(store, run) == all_are("abandoned")
    assert (await store.reader.read_run(run.root)).abandoned_at == START + timedelta(seconds=60)


async def test_records_without_a_recorder_use_the_lease_of_the_run(store: Living) -> None:
    run = await in_flight(store, None)
    await store.pass_time(880)
    await store.record(run.call_started(store.clock.seconds, attempt=2))
    await store.pass_time(880)
    assert await statuses(store, run) == all_are("running")

    await store.pass_time(20)

    assert await statuses(store, run) == all_are("abandoned")
    await store.record(run.plan_finished(2000))
    await store.pass_time(1)
    shown = await statuses(store, run)
    assert (shown["run"], shown["plan"], shown["call"]) == ("succeeded", "succeeded", "running")


async def test_open_spans_are_abandoned_after_900_s_without_new_spans(store: Living) -> None:
    unfinished = agent(1, "planner", at=(0, None)), tool(2, "measure", at=(1, None), parent=1)
    await store.record_spans(spans_from(*unfinished))
    await store.pass_time(899)
    assert {row["status"] for row in (await read_rows(store, RUN_OF_SPANS)).values()} == {"running"}

    await store.pass_time(1)
    assert (await store.reader.read_run(RUN_OF_SPANS)).shown_status == "abandoned"
    rows = await read_rows(store, RUN_OF_SPANS)
    assert {row["status"] for row in rows.values()} == {"abandoned"}


async def test_heartbeat_for_a_run_of_spans_starts_a_recorder_lease(store: Living) -> None:
    await store.record_spans(spans_from(agent(1, "planner", at=(0, None))))
    await store.project()
    await store.pass_time(10)

    await store.writer.renew(RUN_OF_SPANS)
    await store.pass_time(59)
    assert (await store.reader.read_run(RUN_OF_SPANS)).shown_status == "running"
    await store.pass_time(1)
    assert (await store.reader.read_run(RUN_OF_SPANS)).shown_status == "abandoned"

    await store.writer.renew(RUN_OF_SPANS)
    await store.pass_time(1)
    assert (await store.reader.read_run(RUN_OF_SPANS)).shown_status == "running"


async def test_late_span_of_an_abandoned_trace_renews_its_lease(store: Living) -> None:
    unfinished = agent(1, "planner", at=(0, None)), tool(2, "measure", at=(1, None), parent=1)
    await store.record_spans(spans_from(*unfinished))
    await store.pass_time(1000)

    await store.record_spans(spans_from(tool(2, "measure", at=(1, 2000), parent=1)))
    await store.pass_time(1)

    (call,) = (await store.reader.list_tool_calls(ToolCallFilter(), 9, None)).items
    assert (call.shown_status, call.abandoned_at) == ("succeeded", None)
    assert (await store.reader.read_run(RUN_OF_SPANS)).shown_status == "running"

    await store.pass_time(900)
    assert (await store.reader.read_run(RUN_OF_SPANS)).shown_status == "abandoned"
    await store.record_spans(spans_from(agent(1, "planner", at=(0, 3000))))
    await store.pass_time(1000)
    rows = await read_rows(store, RUN_OF_SPANS)
    assert {row["status"] for row in rows.values()} == {"succeeded"}
    assert {row["abandonedAt"] for row in rows.values()} == {None}


async def test_late_projection_does_not_renew_the_lease_of_a_run(store: Living) -> None:
    await store.record_spans(spans_from(agent(1, "planner", at=(0, None))))
    await store.pass_time(1000)
    await store.project()
    await store.pass_time(1)

    run = await store.reader.read_run(RUN_OF_SPANS)
    assert run.shown_status == "abandoned"
    assert run.abandoned_at == START + timedelta(seconds=900)


async def test_trace_without_open_spans_keeps_its_revision_when_its_lease_expires(
    store: Living,
) -> None:
    await store.record_spans(spans_from(agent(1, "planner"), tool(2, "measure", parent=1)))
    revision = (await store.reader.read_run(RUN_OF_SPANS)).revision

    await store.pass_time(2000)

    assert (await store.reader.read_run(RUN_OF_SPANS)).revision == revision


async def test_changes_report_a_run_as_abandoned_and_then_as_running(store: Living) -> None:
    recorder_id = new_id()
    run = await in_flight(store, recorder_id)
    watched = Watched(run.root)
    await watched.catch_up(store)

    await store.pass_time(60)
    await watched.catch_up(store)
    assert watched.rows == await read_rows(store, run.root)
    assert watched.rows[Kind.TOOL_CALL, str(run.call)]["status"] == "abandoned"
    assert watched.revision == (await store.reader.read_run(run.root)).revision

    await store.writer.renew(recorder_id)
    await store.pass_time(1)
    await watched.catch_up(store)
    assert watched.rows == await read_rows(store, run.root)
    assert watched.rows[Kind.TOOL_CALL, str(run.call)]["status"] == "running"


async def test_abandoned_run_keeps_its_revision_when_the_reaper_runs_again(store: Living) -> None:
    run = await in_flight(store, new_id())
    await store.pass_time(60)
    revision = (await store.reader.read_run(run.root)).revision

    await store.pass_time(600)

    assert (await store.reader.read_run(run.root)).revision == revision


async def test_lists_of_runs_and_calls_can_be_filtered_by_abandoned(store: Living) -> None:
    dead, alive = await in_flight(store, new_id()), await in_flight(store, recorder := new_id())
    await store.pass_time(30)
    await store.writer.renew(recorder)
    await store.pass_time(30)

    for status, run in (("abandoned", dead), ("running", alive)):
        runs = await store.reader.list_runs(RunFilter(status=status), 9, None)
        assert [each.root_plan_id for each in runs.items] == [run.root]
        calls = await store.reader.list_tool_calls(ToolCallFilter(status=status), 9, None)
        assert [each.tool_call_id for each in calls.items] == [run.call]


async def test_lease_of_an_abandoned_record_has_its_expiry_time(store: Living) -> None:
    recorder_id = new_id()
    run = await in_flight(store, recorder_id)
    await store.pass_time(20)
    renewed = await store.writer.renew(recorder_id)
    assert (renewed.recorder_id, renewed.length) == (recorder_id, timedelta(seconds=60))
    assert renewed.renew_after == timedelta(seconds=20)
    await store.pass_time(70)

    (lease,) = await store.reader.read_leases(run.root)
    assert lease == renewed
    assert lease.seen_at == START + timedelta(seconds=20)
    assert (await store.reader.read_run(run.root)).abandoned_at == lease.expires_at


async def test_last_heartbeat_is_never_earlier_than_the_newest_record(store: Living) -> None:
    recorder_id = new_id()
    run = await in_flight(store, recorder_id)
    for _ in range(3):
        await store.pass_time(7)
        another = run.call_started(store.clock.seconds, tool_call_id=new_id())
        await store.record(*by(recorder_id, another))

        calls = (await store.reader.list_tool_calls(ToolCallFilter(), 9, None)).items
        (lease,) = await store.reader.read_leases(run.root)
        assert lease.seen_at >= max(call.recorded_at for call in calls if call.recorded_at)

    await store.pass_time(60)
    (lease,) = await store.reader.read_leases(run.root)
    assert (await store.reader.read_run(run.root)).abandoned_at == lease.expires_at
    assert lease.seen_at == START + timedelta(seconds=21)


async def test_read_leases_of_a_missing_run_raises_not_found(store: Living) -> None:
    with pytest.raises(RecordNotFound):
        await store.reader.read_leases(new_id())


async def test_lease_of_a_recorder_without_records_expires_without_an_error(store: Living) -> None:
    await store.writer.renew(new_id())
    await store.pass_time(200)


async def test_deleted_run_stays_deleted_when_its_lease_expires_or_is_renewed(
    store: Living,
) -> None:
    recorder_id = new_id()
    run = await in_flight(store, recorder_id)
    await store.writer.delete_run(run.root)

    await store.pass_time(100)
    await store.writer.renew(recorder_id)
    await store.pass_time(1)

    with pytest.raises(RecordNotFound):
        await store.reader.read_run(run.root)
    answer = await store.writer.write(by(recorder_id, run.call_finished(5)))
    assert [refusal.code for refusal in answer.refused] == ["run_deleted"]


async def test_placeholder_is_never_abandoned(store: Living) -> None:
    run = Moments()
    await store.record(*by(new_id(), run.call_started(0)))

    await store.pass_time(100)

    assert (await store.reader.read_tool_call(run.call)).call.shown_status == "abandoned"
    assert (await store.reader.read_run(run.root)).status is Status.UNKNOWN
    assert (await store.reader.read_run(run.root)).abandoned_at is None
