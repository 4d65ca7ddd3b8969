"""Runs for pages: one with a failure two sub-agents deep, and one with a long conversation."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from tests.stepping import stepping_clock
from tracer.records import IdSource, Reason, Status, new_id
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

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
QUESTION = "Why was I charged twice for invoice INV-00042? Please fix it."


@dataclass
class FailingRun:
    """A run of `billing` that fails because of a call two sub-agents deep."""

    root: UUID
    events: list[Event]
    invoice_call: UUID
    ledger_call: UUID
    """It opened the sub-agent `ledger`."""
    bank_call: UUID
    """It opened the sub-agent `bank`, below `ledger`."""
    origin: UUID
    """The call that failed first: `http_get` of `bank`."""


class _Agent:
    """Writes the events of one agent: a plan with a single step."""

    def __init__(
        self, events: list[Event], clock: Any, ids: IdSource, root: UUID | None = None
    ) -> None:
        self._events, self._clock, self._ids = events, clock, ids
        self.plan = ids()
        self.root = root or self.plan
        self.step = ids()
        self._rounds = 0
        self._place: dict[str, Any] = {"root_plan_id": self.root, "plan_id": self.plan}

    def start(self, name: str, request: str, tools: tuple[str, ...] = (), **fields: Any) -> None:
        self._tools = [
            {"name": tool, "description": f"The tool {tool}", "parameters": {"type": "object"}}
            for tool in tools
        ]
        step = PlannedStep(step_id=self.step, agent_name=name, request=request)
        self._say(
            PlanStarted,
            title=request,
            user_request=request,
            agent_name=name,
            steps=(step,),
            **fields,
        )
        self._say(StepStarted, step_id=self.step, position=0, agent_name=name)

    def call_model(
        self,
        messages: list[dict[str, Any]],
        thought: str,
        calls: list[tuple[str, dict[str, Any]]] = [],  # noqa: B006
        tokens: tuple[int, int] = (400, 36),
    ) -> list[UUID]:
        """Record one call of the model, and return the ids of the calls that it chose."""
        round_id = self._ids()
        self.round = round_id
        chosen = [
            ChosenToolCall(
                tool_call_id=self._ids(),
                name=name,
                arguments=json.dumps(arguments),
                provider_call_id=f"call_{self._rounds}_{index}",
            )
            for index, (name, arguments) in enumerate(calls)
        ]
        self._say(
            ThoughtStarted,
            step_id=self.step,
            think_act_id=round_id,
            position=self._rounds,
            requested_model="gpt-5-mini",
            messages=json.dumps(messages),
            provider="openai",
            parameters='{"temperature": 0.2}',
            offered_tools=json.dumps(self._tools),
        )
        self._say(
            ThoughtRecorded,
            step_id=self.step,
            think_act_id=round_id,
            status=Status.SUCCEEDED,
            thought=thought,
            model="gpt-5-mini",
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            cost_usd=Decimal(tokens[0] + 8 * tokens[1]) / 4_000_000,
            cache_read_tokens=tokens[0] // 2,
            reasoning_tokens=tokens[1] // 3,
            finish_reasons=("tool_calls" if calls else "stop",),
            tool_calls=tuple(chosen),
        )
        self._rounds += 1
        return [each.tool_call_id for each in chosen]

    def finish_call(self, call: UUID, result: str) -> None:
        self._end_call(call, status=Status.SUCCEEDED, result=result)

    def fail_call(self, call: UUID, error: ErrorInfo) -> None:
        self._end_call(call, status=Status.FAILED, reason=Reason.TOOL_ERROR, error=error)

    def finish(self, summary: str) -> None:
        self._say(StepFinished, step_id=self.step, status=Status.SUCCEEDED, result=summary)
        self._say(PlanFinished, status=Status.SUCCEEDED, summary=summary)

    def fail(self, error: ErrorInfo) -> None:
        self._say(StepFinished, step_id=self.step, status=Status.FAILED, error=error)
        self._say(PlanFinished, status=Status.FAILED, error=error)

    def _end_call(self, call: UUID, **fields: Any) -> None:
        self._say(
            ToolCallFinished,
            step_id=self.step,
            think_act_id=self.round,
            tool_call_id=call,
            **fields,
        )

    def _say(self, event: Any, **fields: Any) -> None:
        self._events.append(event(at=self._clock(), **self._place, **fields))


def failing_run(
    ids: IdSource = new_id,
    start: datetime = START,
    question: str = QUESTION,
    session_id: str = "conv-7781",
) -> FailingRun:
    """Return a run whose failure began two sub-agents deep and reached the top unhandled."""
    events: list[Event] = []
    clock = stepping_clock(start, timedelta(milliseconds=20))
    error = ErrorInfo(
        type="TimeoutError",
        message="bank.example did not answer within 30 s: GET /api/v2/statements (attempt 3 of 3)",
        stack='Traceback (most recent call last):\n  File "tool.py", line 41, in http_get',
    )

    billing = _Agent(events, clock, ids)
    billing.start("billing", question, tags=("billing",), session_id=session_id)
    invoice, ask_ledger = billing.call_model(
        [{"role": "user", "content": question}],
        "I look up the invoice and ask the ledger for its payments.",
        [
            ("get_invoice", {"invoice": "INV-00042"}),
            ("ask_ledger", {"question": "All payments of customer-42 in October"}),
        ],
        tokens=(812, 77),
    )
    billing.finish_call(invoice, '{"invoice": "INV-00042", "total": "129.00 EUR"}')

    ledger = _Agent(events, clock, ids, billing.root)
    opened_by: dict[str, Any] = {"parent_plan_id": billing.plan, "tool_call_id": ask_ledger}
    ledger.start("ledger", "All payments of customer-42 in October", depth=1, **opened_by)
    sql, ask_bank = ledger.call_model(
        [{"role": "user", "content": "All payments of customer-42 in October"}],
        "",
        [
            ("sql", {"query": "select * from payments where customer = 42"}),
            ("ask_bank", {"question": "Statement of October"}),
        ],
        tokens=(288, 21),
    )
    ledger.finish_call(sql, "400 rows")

    bank = _Agent(events, clock, ids, billing.root)
    opened_by = {"parent_plan_id": ledger.plan, "tool_call_id": ask_bank}
    bank.start("bank", "Statement of October", depth=2, **opened_by)
    [http_get] = bank.call_model(
        [{"role": "user", "content": "Statement of October"}],
        "Fetching the statement.",
        [("http_get", {"url": "https://bank.example/api/v2/statements?month=2026-10"})],
        tokens=(132, 11),
    )
    bank.fail_call(http_get, error)
    bank.fail(error)
    ledger.fail_call(ask_bank, error)
    ledger.fail(error)
    billing.fail_call(ask_ledger, error)
    billing.fail(error)
    return FailingRun(billing.root, events, invoice, ask_ledger, ask_bank, http_get)


@dataclass
class LongConversation:
    """A run of one agent with many calls of its model, each after a call of a tool."""

    root: UUID
    events: list[Event]
    rounds: list[UUID] = field(default_factory=list)
    calls: list[UUID] = field(default_factory=list)


TABLE = """## Open invoices

| invoice | total |
|---|---|
| INV-00001 | **13.37 EUR** |
| INV-00002 | 26.74 EUR |

See [the ledger](https://ledger.example/open)."""


def long_conversation(
    rounds: int = 13, ids: IdSource = new_id, start: datetime = START
) -> LongConversation:
    """Return a run whose messages grow with each of its rounds; the last answers with a table."""
    events: list[Event] = []
    agent = _Agent(events, stepping_clock(start, timedelta(milliseconds=12)), ids)
    run = LongConversation(agent.root, events)
    request = "Summarise my open invoices as a table"
    agent.start("billing", request, ("list_invoices", "get_invoice", "refund", "ask_ledger"))
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are **billing**. Answer with tables.\n\n- be brief"},
        {"role": "user", "content": request},
    ]
    for page in range(rounds - 1):
        said = f"I read page {page}."
        [call] = agent.call_model(
            messages, said, [("list_invoices", {"page": page})], (900 + 170 * page, 77)
        )
        run.rounds.append(agent.round)
        run.calls.append(call)
        lines = "\n".join(
            f"Line {line}: invoice INV-{40 * page + line:05}, total {13.37 * line:.2f} EUR"
            for line in range(40)
        )
        agent.finish_call(call, lines)
        made = {"name": "list_invoices", "arguments": json.dumps({"page": page})}
        name = f"call_{page}_0"
        asked = {"id": name, "type": "function", "function": made}
        messages = [
            *messages,
            {"role": "assistant", "content": said, "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": name, "content": lines},
        ]
    agent.call_model(messages, TABLE, tokens=(900 + 170 * rounds, 120))
    run.rounds.append(agent.round)
    agent.finish(TABLE)
    return run


@dataclass
class WeekRun:
    """A run of one agent that measures twice, asks a sub-agent and answers."""

    root: UUID
    events: list[Event]
    doctor_call: UUID
    """It opened the sub-agent `doctor`."""
    answer: UUID
    """The round that answered."""


def week_run(
    answer: str = "Your week was calm.",
    is_compact: bool = False,
    pulse: int = 78,
    question: str = "How was my week?",
    session_id: str | None = None,
    ids: IdSource = new_id,
    start: datetime = START,
) -> WeekRun:
    """Return a run with a tool that opens a sub-agent, for comparisons and statistics.

    Args:
        answer: The answer of its last round.
        is_compact: Whether the JSON of arguments and results has no white space, and its keys in
            another order.
        pulse: A result, which is a new message of the last round.
        question: The request, which is also the title.
        session_id: The session.
        ids: Where its ids come from.
        start: When it starts.
    """

    def written(value: dict[str, Any]) -> str:
        if not is_compact:
            return json.dumps(value)
        return json.dumps(dict(reversed(value.items())), separators=(",", ":"))

    events: list[Event] = []
    clock = stepping_clock(start, timedelta(milliseconds=50))
    nurse = _Agent(events, clock, ids)
    nurse.start("nurse", question, ("measure", "ask_doctor"), session_id=session_id)
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    asked = {"patient": "P-1", "days": [1, 2, 3]}
    [measure, ask_doctor] = nurse.call_model(
        messages,
        "I measure and ask the doctor.",
        [("measure", asked), ("ask_doctor", {"question": "Is it well?", "urgent": False})],
        tokens=(310, 42),
    )
    chosen = events[-1]
    assert isinstance(chosen, ThoughtRecorded)
    calls = (
        chosen.tool_calls[0].model_copy(update={"arguments": written(asked)}),
        chosen.tool_calls[1],
    )
    events[-1] = chosen.model_copy(update={"tool_calls": calls})
    result = written({"pulse": pulse, "unit": "bpm"})
    nurse.finish_call(measure, result)

    doctor = _Agent(events, clock, ids, nurse.root)
    opened_by: dict[str, Any] = {"parent_plan_id": nurse.plan, "tool_call_id": ask_doctor}
    doctor.start("doctor", "Is it well?", depth=1, **opened_by)
    doctor.call_model([{"role": "user", "content": "Is it well?"}], "It is well.", tokens=(90, 8))
    doctor.finish("It is well.")
    nurse.finish_call(ask_doctor, "It is well.")
    results = [
        {"role": "assistant", "content": "I measure and ask the doctor."},
        {"role": "tool", "tool_call_id": str(measure), "content": result},
        {"role": "tool", "tool_call_id": str(ask_doctor), "content": "It is well."},
    ]
    nurse.call_model([*messages, *results], answer, tokens=(420, len(answer)))
    final = nurse.round
    nurse.finish(answer)
    return WeekRun(nurse.root, events, ask_doctor, final)


def deep_run(agents: int, ids: IdSource = new_id, start: datetime = START) -> list[Event]:
    """Return the events of agents each of which opens the next."""
    events: list[Event] = []
    clock = stepping_clock(start, timedelta(milliseconds=10))
    opened: list[tuple[_Agent, UUID]] = []
    fields: dict[str, Any] = {}
    root: UUID | None = None
    for level in range(agents):
        agent = _Agent(events, clock, ids, root)
        root = agent.root
        task = f"Investigate component {level}"
        agent.start(f"agent_{level}", task, depth=level, **fields)
        asks = [("delegate", {"component": level + 1})] if level < agents - 1 else []
        calls = agent.call_model([{"role": "user", "content": task}], "", asks)
        for call in calls:
            opened.append((agent, call))
            fields = {"parent_plan_id": agent.plan, "tool_call_id": call}
        if not calls:
            agent.finish("Component found")
    for agent, call in reversed(opened):
        agent.finish_call(call, "Component found")
        agent.finish("Component found")
    return events
