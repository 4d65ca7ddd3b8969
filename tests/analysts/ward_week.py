"""A week on the ward: the data of `docs/guides/queries.md`.

Five runs of agents, recorded as events, and one that came as OpenTelemetry spans; ids and times are
fixed. Another project holds the same again: an analyst must not see it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tests.analysts.telling import CANCELLED, FAILED, Telling
from tests.otel.made_traces import agent, make_span, spans_from, tool
from tests.otel.sent import traces_of
from tests.projecting import project_in
from tests.reaping import expire_leases
from tracer.records import LeaseTerms, Reason
from tracer.records.spans import Span
from tracer.storage.postgres import Pool, ProjectPool, WriterOptions, postgres_writer

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
WARD_1 = UUID("00000000-0000-7000-8000-00000000000a")
WARD_2 = UUID("00000000-0000-7000-8000-00000000000b")
"""The processes that record."""

LARGE, SMALL = "gpt-4o", "gpt-4o-mini"
P7 = '{"patient":"p-7"}'
TERMS = LeaseTerms(timedelta(seconds=60), timedelta(seconds=900))


def weekly_review() -> Telling:
    """Three tools at once, one of them tried three times; sub-plans two levels deep."""
    run = Telling(1, MONDAY + timedelta(hours=14, minutes=2, seconds=30), WARD_1)
    root = run.plan(0, "doctor", "Weekly review", session_id="ward-3", subject="p-7")
    chart, pressure, check = run.think(
        root,
        (0.5, 2),
        LARGE,
        (1200, 80),
        "0.0038",
        ("read_chart", P7),
        ("measure_pressure", P7),
        ("check_medication", P7),
    )
    run.finish(chart, 2.4, result='{"lines":12}')
    run.attempt(pressure, 12, "measure_pressure", 2)
    run.attempt(pressure, 22, "measure_pressure", 3)
    run.finish(pressure, 31, result='{"systolic":121}', attempt=3)
    below = run.plan(2.1, "pharmacist", "Check the medication", check)
    (look_up,) = run.think(
        below, (2.5, 5), SMALL, (900, 60), "0.0002", ("look_up_interactions", P7), sub_plans=True
    )
    lowest = run.plan(5.1, "librarian", "Look up interactions", look_up)
    search, again = run.think(
        lowest,
        (5.5, 7),
        SMALL,
        (400, 40),
        "0.0001",
        ("search", '{"q":"ramipril"}'),
        ("search", '{"q":"ibuprofen"}'),
    )
    run.finish(search, 27, result='{"hits":3}')
    run.finish(again, 39, result='{"hits":8}')
    run.think(lowest, (39, 41), SMALL, (700, 90), "0.0002", position=1)
    run.end(lowest, 41)
    run.finish(look_up, 41.2)
    run.end(below, 43)
    run.finish(check, 43.5)
    run.think(root, (44, 47), LARGE, (2100, 300), "0.0083", position=1)
    run.end(root, 47.5)
    return run


def night_check() -> Telling:
    """What fails at the bottom fails the run."""
    run = Telling(2, MONDAY + timedelta(days=1, hours=2), WARD_1)
    root = run.plan(0, "doctor", "Night check", session_id="ward-3", subject="p-7")
    (check,) = run.think(
        root, (0, 2), LARGE, (1000, 50), "0.003", ("check_medication", P7), sub_plans=True
    )
    below = run.plan(2.1, "pharmacist", "Check the medication", check)
    (look_up,) = run.think(
        below, (2.5, 4), SMALL, (800, 40), "0.0002", ("look_up_interactions", P7), sub_plans=True
    )
    lowest = run.plan(4.1, "librarian", "Look up interactions", look_up)
    (search,) = run.think(
        lowest, (4.5, 6), SMALL, (300, 20), "0.0001", ("search", '{"q":"ramipril"}')
    )
    run.attempt(search, 16, "search", 2)
    away = ("ConnectError", "the library does not answer")
    run.finish(search, 26, FAILED, Reason.UNAVAILABLE, away, attempt=2)
    run.end(lowest, 26.5, FAILED, away[1])
    # As who records by hand may say it: what the sub-plan raised, and no reason.
    run.finish(look_up, 27, FAILED, error=away)
    run.end(below, 27.5, FAILED, away[1])
    run.finish(check, 28, FAILED, Reason.SUBPLAN_FAILED, ("SubplanFailed", away[1]))
    run.end(root, 28.5, FAILED, away[1])
    return run


def morning_round() -> Telling:
    """The same asked three times; a call that is denied, one that ends late, one cancelled."""
    run = Telling(3, MONDAY + timedelta(days=1, hours=9), WARD_2)
    root = run.plan(0, "nurse", "Morning round", session_id="ward-4", subject="p-9")
    for number in range(3):
        at = 4 * number
        (chart,) = run.think(
            root,
            (at, at + 1),
            SMALL,
            (500 + 200 * number, 20),
            "0.0002",
            ("read_chart", '{"patient":"p-9"}'),
            position=number,
        )
        run.finish(chart, at + 1.5, result='{"lines":7}')
    give, scan, weigh = run.think(
        root,
        (12, 13),
        SMALL,
        (1300, 90),
        "0.0004",
        ("give_medication", '{"patient":"p-9"}'),
        ("request_scan", '{"patient":"p-9"}'),
        ("weigh", '{"patient":"p-9"}'),
        position=3,
        queued=True,
    )
    run.attempt(give, 13, "give_medication", 1)
    denied = ("Denied", "a nurse may not")
    run.finish(give, 13.2, FAILED, Reason.DENIED, denied, forged_arguments=("tokenId",))
    run.attempt(scan, 13.5, "request_scan", 1)
    slow = ("TimedOut", "no answer in 30 s")
    run.finish(scan, 43.5, FAILED, Reason.TIMED_OUT, slow, still_running=True)
    run.finish(weigh, 44, CANCELLED, Reason.CANCEL_REQUESTED)
    run.end(root, 45, CANCELLED)
    return run


def handover() -> Telling:
    """A hand-off without a tool call; a plan whose opener never came."""
    run = Telling(4, MONDAY + timedelta(days=2, hours=7), WARD_2)
    root = run.plan(0, "nurse", "Handover", session_id="ward-4", subject="p-9")
    run.think(root, (0, 2), SMALL, (600, 30), "0.0003")
    onward = run.plan(2.5, "doctor", "Take over", root)
    (chart,) = run.think(
        onward, (3, 5), LARGE, (1500, 60), "0.0044", ("read_chart", '{"patient":"p-9"}')
    )
    run.finish(chart, 5.6, result='{"lines":9}')
    nowhere = replace(onward, id=run.new_id(), step=run.new_id())
    lost = replace(chart, id=run.new_id(), plan=nowhere)
    note = run.plan(6, "scribe", "Write the note", lost)
    run.end(note, 7)
    run.end(onward, 8)
    run.end(root, 8.5)
    return run


def night_watch() -> Telling:
    """What the process left open when it was killed."""
    run = Telling(5, MONDAY + timedelta(days=2, hours=23), WARD_2)
    root = run.plan(0, "nurse", "Night watch", session_id="ward-4", subject="p-9")
    run.think(
        root,
        (0, 1),
        SMALL,
        (500, 20),
        "0.0002",
        ("measure_pressure", '{"patient":"p-9"}'),
        ("weigh", '{"patient":"p-9"}'),
    )
    return run


EVENTS = (weekly_review, night_check, morning_round, handover, night_watch)


def exported_trace() -> list[Span]:
    """Return a run as its framework exported it: an agent lost the link to the call above it."""
    at = (MONDAY + timedelta(days=3)).timestamp() - 1  # a made span begins a second after it

    def during(began: float, ended: float) -> tuple[float, float]:
        return (at + began, at + ended)

    return spans_from(
        make_span(1, "workflow", at=during(0, 12)),
        agent(2, "triage", parent=1, at=during(0, 11)),
        tool(3, "ask_specialist", '{"about":"p-7"}', parent=2, at=during(1, 9)),
        tool(4, "read_chart", P7, parent=2, at=during(1, 2)),
        agent(5, "specialist", parent=1, at=during(2, 8)),
    )


async def tell_week(pool: Pool, project_id: int) -> None:
    """Write the week into a project, and let the dead be found."""
    now = MONDAY

    def clock() -> datetime:
        return now

    project = ProjectPool(pool, project_id)
    writer = postgres_writer(project, WriterOptions(clock=clock, terms=TERMS, lease_clock=clock))
    for record_run in EVENTS:
        run = record_run()
        now = max(event.at for event in run.events)
        await writer.write(run.events)
    await writer.write_spans(traces_of(exported_trace()))
    await project_in(pool)
    await expire_leases(pool, now + timedelta(days=7))
