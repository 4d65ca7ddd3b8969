"""Runs of any size with many handled failures, and one failure that made the run fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from tracer.records import Reason, Status, new_id
from tracer.records.events import (
    ChosenToolCall,
    ErrorInfo,
    Event,
    PlanFinished,
    PlannedStep,
    PlanStarted,
    StepFinished,
    StepStarted,
    ThoughtRecorded,
    ThoughtStarted,
    ToolCallFinished,
)

LEVELS = 5
HANDLED = 30
STACK = """Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/httpx/_client.py", line 1574, in send
    response = self._send(request)
  File "/srv/billing/refunds.py", line 88, in refund
    raise LedgerClosed(f"The ledger of {month} is closed.")
billing.errors.LedgerClosed: The ledger of October is closed.
"""


@dataclass
class FailingRun:
    """A run, and the call at which its failure began."""

    root: UUID
    origin: UUID
    events: list[Event] = field(default_factory=list)
    records: int = 0


def failing_run(seed: int, records: int = 10_000) -> FailingRun:
    """Return a run of about `records` records whose failure began five agents below its own."""
    random = Random(seed)
    run = FailingRun(new_id(), new_id())
    clock = _clock(random)
    rounds = max(1, (records - 5 * (LEVELS + 1)) // (6 * (LEVELS + 1)))
    handled = iter(sorted(random.sample(range(rounds * (LEVELS + 1)), min(HANDLED, rounds * 6))))
    _plan(run, clock, random, [run.root], None, rounds, [0, next(handled, -1)], handled)
    return run


def _clock(random: Random) -> Iterator[datetime]:
    at = datetime(2026, 11, 20, 9, tzinfo=UTC)
    while True:
        at += timedelta(milliseconds=random.randrange(1, 40))
        yield at


def _plan(
    run: FailingRun,
    clock: Iterator[datetime],
    random: Random,
    plans: list[UUID],
    opener: UUID | None,
    rounds: int,
    counts: list[int],
    handled: Iterator[int],
) -> None:
    """Add a plan. Its last call opens the next plan, or is the one that fails."""
    level = len(plans) - 1
    ids: dict[str, Any] = {"root_plan_id": run.root, "plan_id": plans[-1]}
    step = new_id()
    agent = ("support", "billing", "refunds", "ledger", "accounts", "postings")[level]
    above: dict[str, Any] = {"parent_plan_id": plans[-2], "tool_call_id": opener} if opener else {}
    run.events += [
        PlanStarted(
            at=next(clock),
            title=f"Settle the refunds of month {random.randrange(1, 13)}",
            user_request="Why is my refund missing?",
            agent_name=agent,
            depth=level,
            steps=(PlannedStep(step_id=step, agent_name=agent, request="Settle the refunds"),),
            **above,
            **ids,
        ),
        StepStarted(at=next(clock), step_id=step, **ids),
    ]
    run.records += 2
    for position in range(rounds):
        names = random.choices(("search", "read_invoice", "lookup", "fetch_page", "note"), k=5)
        calls = [(new_id(), name) for name in names]
        _round(run, clock, random, ids | {"step_id": step}, position, calls)
        for call, _ in calls:
            fails = counts[0] == counts[1] and call == calls[0][0]
            _finish(run, clock, ids | {"step_id": step}, call, handled=fails)
        if counts[0] == counts[1]:
            counts[1] = next(handled, -1)
        counts[0] += 1
    last = run.origin if level == LEVELS else new_id()
    name = "post_refund" if level == LEVELS else f"delegate_to_level_{level + 1}"
    of_step = ids | {"step_id": step}
    _round(run, clock, random, of_step, rounds, [(last, name)])
    if level < LEVELS:
        _plan(run, clock, random, [*plans, new_id()], last, rounds, counts, handled)
        error = ErrorInfo(type="SubPlanFailed", message="The sub-agent failed.")
    else:
        error = ErrorInfo(
            type="LedgerClosed", message="The ledger of October is closed.", stack=STACK
        )
    failed: dict[str, Any] = {"status": Status.FAILED, "error": error}
    run.events += [
        ToolCallFinished(
            at=next(clock), tool_call_id=last, reason=Reason.TOOL_ERROR, **failed, **of_step
        ),
        StepFinished(at=next(clock), reason=Reason.TOOL_ERROR, **failed, **of_step),
        PlanFinished(at=next(clock), reason=Reason.STEP_FAILED, **failed, **ids),
    ]


def _round(
    run: FailingRun,
    clock: Iterator[datetime],
    random: Random,
    ids: dict[str, Any],
    position: int,
    calls: list[tuple[UUID, str]],
) -> None:
    think_act = new_id()
    of_round = ids | {"think_act_id": think_act}
    asked = '[{"role": "user", "content": "Customer 4711 asks for the refund of INV-42."}]'
    chosen = tuple(
        ChosenToolCall(
            tool_call_id=call, name=name, arguments=f'{{"invoice": "INV-{random.randrange(999)}"}}'
        )
        for call, name in calls
    )
    run.events += [
        ThoughtStarted(
            at=next(clock), position=position, requested_model="gpt-5", messages=asked, **of_round
        ),
        ThoughtRecorded(
            at=next(clock),
            status=Status.SUCCEEDED,
            thought="I look at the next invoices.",
            model="gpt-5",
            input_tokens=random.randrange(500, 5_000),
            output_tokens=random.randrange(20, 200),
            cost_usd=Decimal(random.randrange(10_000)) / 1_000_000,
            tool_calls=chosen,
            **of_round,
        ),
    ]
    run.records += 1 + len(calls)


def _finish(
    run: FailingRun, clock: Iterator[datetime], ids: dict[str, Any], call: UUID, *, handled: bool
) -> None:
    outcome: dict[str, Any] = {"status": Status.SUCCEEDED, "result": "Nothing unusual. " * 5}
    if handled:
        error = ErrorInfo(type="TimeoutError", message="The page did not answer in 10 s.")
        outcome = {"status": Status.FAILED, "reason": Reason.TOOL_ERROR, "error": error}
    run.events.append(ToolCallFinished(at=next(clock), tool_call_id=call, **outcome, **ids))
