"""Claude Code: captured sessions give the records that the scripted model server expects."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tests.otel.coding_agents.captured import (
    CAPTURES,
    Message,
    messages_of,
    projected,
    single,
    truth_of,
)
from tests.otel.projections import Projected, differences, split
from tests.profiles import beginnings, quick_among, scaled
from tracer.otel.otlp.spans import attributes_of
from tracer.records import Kind, Reason, Status

NAMES = sorted(folder.name for folder in CAPTURES.iterdir() if folder.name.startswith("claude-"))
WITH_CONTENT = [name for name in NAMES if name.endswith("content-on")]
FINISHED = [name for name in NAMES if "killed" not in name and "terminated" not in name]
STATUSES = {"succeeded": Status.SUCCEEDED, "failed": Status.FAILED}
QUICK = ("claude-code-nested-content-off", "claude-code-killed-content-on")
"""The captures that the quick profile splits at random."""
NEVER_SENT = "NoSuchTool"


def truth_run(name: str) -> dict[str, Any]:
    run: dict[str, Any] = truth_of(name)["runs"][0]
    return run


def all_of(runs: Iterable[Projected], kind: Kind) -> dict[UUID, dict[str, Any]]:
    return {record_id: dict(row) for run in runs for record_id, row in run.records[kind].items()}


class Seen:
    """Projected runs as the truth describes them: by the emitter's ids."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.runs = projected(messages)
        self.plans = all_of(self.runs, Kind.PLAN)
        self.steps = all_of(self.runs, Kind.STEP)
        self.calls = all_of(self.runs, Kind.TOOL_CALL)
        self.rounds = all_of(self.runs, Kind.THINK_ACT)
        self.plan_of_agent: dict[str, UUID] = {}
        records = {span: record for run in self.runs for span, record in run.record_of.items()}
        for _, message in messages:
            for resource in TracesData.FromString(message).resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        agent_id = attributes_of(span.attributes).get("agent_id")
                        kind, record_id = records[span.span_id]
                        if isinstance(agent_id, str) and kind is Kind.THINK_ACT:
                            step = self.steps[self.rounds[record_id]["step_id"]]
                            self.plan_of_agent[agent_id] = step["plan_id"]

    def opener(self, plan_id: UUID) -> str | None:
        """Return the provider's id of the call that opened a plan; None for a root plan."""
        call_id = self.plans[plan_id]["tool_call_id"]
        return None if call_id is None else self.calls[call_id]["provider_call_id"]

    def caller(self, call: dict[str, Any]) -> tuple[bool, str | None]:
        """Return whether it is known who made a call, and the call that opened that agent."""
        step = self.steps[call["step_id"]]
        plan = self.plans[step["plan_id"]]
        is_root = step["plan_id"] in {run.root_plan_id for run in self.runs}
        is_known = step["agent_name"] is not None if is_root else plan["tool_call_id"] is not None
        return is_known, self.opener(step["plan_id"])


def wrong_links(seen: Seen, truth: dict[str, Any]) -> list[str]:
    """Return the links that are not those of the truth. A missing link is not wrong."""
    wrong = []
    lives = []
    for agent in truth["sub_agents"]:
        plan_id = seen.plan_of_agent.get(agent["agent_id"])
        found = seen.opener(plan_id) if plan_id is not None else None
        calls = {agent["opened_by"]["provider_call_id"], *agent["continued_by"]}
        lives.append(calls)
        if found is not None and found not in calls:
            wrong.append(f"{agent['agent_id']} opened by {found}")
    expected = {call["provider_call_id"]: call for call in truth["tool_calls"]}
    for call in seen.calls.values():
        is_known, opener = seen.caller(call)
        true = expected.get(call["provider_call_id"])
        above = (true["parent_tool_call"] or {}).get("provider_call_id") if true else None
        same = next((calls for calls in lives if above in calls), {above})
        if is_known and true is not None and opener not in same:
            wrong.append(f"{call['name']} {call['provider_call_id']} within {opener}")
    return wrong


def tokens(rounds: Iterable[dict[str, Any]]) -> tuple[int, int]:
    found = list(rounds)
    return (
        sum(each["input_tokens"] or 0 for each in found),
        sum(each["output_tokens"] or 0 for each in found),
    )


def true_tokens(truth: dict[str, Any]) -> tuple[int, int]:
    cached = truth["cache_creation_input_tokens"] + truth["cache_read_input_tokens"]
    return truth["input_tokens"] + cached, truth["output_tokens"]


@pytest.mark.parametrize("name", NAMES)
def test_session_has_the_expected_sub_agents_opening_calls_and_tokens(name: str) -> None:
    seen, truth = Seen(messages_of(name)), truth_run(name)
    # After SIGTERM the program does not send its last model call.
    is_cut_off = "terminated" in name

    for agent in truth["sub_agents"]:
        plan_id = seen.plan_of_agent[agent["agent_id"]]
        plan = seen.plans[plan_id]
        assert seen.opener(plan_id) == agent["opened_by"]["provider_call_id"]
        assert plan["agent_name"] == agent["agent"]
        steps = {step for step, row in seen.steps.items() if row["plan_id"] == plan_id}
        own = [row for row in seen.rounds.values() if row["step_id"] in steps]
        assert tokens(own) == true_tokens(agent) or is_cut_off
        continued = [
            call["provider_call_id"]
            for call in seen.calls.values()
            if call["continued_plan_id"] == plan_id
        ]
        assert continued == agent["continued_by"]
    assert tokens(seen.rounds.values()) == true_tokens(truth) or is_cut_off
    assert len(seen.plans) == len(truth["sub_agents"]) + len(seen.runs)
    calls = {call["provider_call_id"]: call for call in seen.calls.values()}
    expected = [call for call in truth["tool_calls"] if call["name"] != NEVER_SENT]
    assert sorted(calls) == sorted(call["provider_call_id"] for call in expected)
    assert wrong_links(seen, truth) == []
    for true in expected:
        call = calls[true["provider_call_id"]]
        assert call["name"] == true["name"]
        assert seen.caller(call)[0]
        if name in FINISHED:
            assert call["status"] is STATUSES[true["status"]]


@pytest.mark.parametrize("name", sorted({*WITH_CONTENT} & {*FINISHED}))
def test_session_has_the_expected_texts_arguments_and_results(name: str) -> None:
    seen, truth = Seen(messages_of(name)), truth_run(name)
    answers = truth.get("final_answer")

    assert seen.runs[0].whole_run["title"] == truth["prompt"]
    assert answers is None or answers in {plan["summary"] for plan in seen.plans.values()}
    calls = {call["provider_call_id"]: call for call in seen.calls.values()}
    for true in truth["tool_calls"]:
        call = calls.get(true["provider_call_id"])
        if call is None:
            continue
        if call["reason"] != Reason.DENIED:  # no event has the arguments
            assert json.loads(call["arguments"]) == true["arguments"]
        is_sent = "moved to the background" not in (true["result"] or "")
        if true["name"] == "Bash" and true["status"] == "succeeded" and is_sent:
            assert call["result"] == true["result"]
        if true["name"] == "Agent" and call["result"] is not None:
            assert call["result"] in true["result"]
        if true["status"] == "failed":
            assert call["error_message"] or call["reason"] == Reason.DENIED
    for agent in truth["sub_agents"]:
        plan = seen.plans[seen.plan_of_agent[agent["agent_id"]]]
        assert plan["user_request"] == agent["opened_by"]["arguments"]["prompt"]
        assert plan["summary"] or plan["status"] is Status.FAILED


def test_content_that_the_agent_does_not_export_is_null() -> None:
    seen = Seen(messages_of("claude-code-nested-content-off"))

    texts = [
        *(plan[name] for plan in seen.plans.values() for name in ("user_request", "summary")),
        *(call[name] for call in seen.calls.values() for name in ("arguments", "result")),
        *(each["thought"] for each in seen.rounds.values()),
    ]
    assert {*texts} == {None}
    assert {plan["title"] for plan in seen.plans.values()} == {None}


@pytest.mark.parametrize("name", NAMES)
def test_records_are_equal_if_a_capture_is_reordered_split_or_repeated(name: str) -> None:
    whole = messages_of(name)
    expected = projected(whole)
    parts = single(whole)
    chance = random.Random(name)
    orders: list[list[Message]] = [parts, parts[::-1], [*whole, *parts]]
    for first, second in (("logs", "traces"), ("traces", "logs")):
        orders.append([*messages_of(name, first), *messages_of(name, second)])
    for _ in range(5):
        orders.append(chance.sample(parts, len(parts)))

    for order in orders:
        found = projected(order)
        assert [differences(*pair) for pair in zip(found, expected, strict=True)] == [
            [] for _ in expected
        ]


@pytest.mark.parametrize("name", quick_among(NAMES, QUICK))
@given(chance=st.randoms(use_true_random=False))
@settings(max_examples=scaled(20), deadline=None)
def test_any_split_of_a_capture_gives_the_same_records(name: str, chance: random.Random) -> None:
    parts = single(messages_of(name))
    by_trace: dict[bytes, list[bytes]] = {}
    for trace_id, message in parts:
        by_trace.setdefault(trace_id, []).append(message)
    found = projected(
        (trace_id, part)
        for trace_id, messages in by_trace.items()
        for part in split(messages, chance)
    )

    for run, other in zip(found, projected(parts), strict=True):
        assert differences(run, other) == []


@pytest.mark.parametrize("name", NAMES)
def test_no_prefix_of_a_capture_gives_a_wrong_link(name: str) -> None:
    truth = truth_run(name)
    for messages in (messages_of(name), single(messages_of(name))):
        for end in beginnings(len(messages), len(messages)):
            assert wrong_links(Seen(messages[:end]), truth) == []


@pytest.mark.parametrize("name", NAMES)
def test_no_subset_of_a_capture_gives_a_wrong_link(name: str) -> None:
    truth, parts = truth_run(name), single(messages_of(name))
    chance = random.Random(name)
    for _ in range(scaled(40)):
        some = chance.sample(parts, chance.randint(1, len(parts)))
        assert wrong_links(Seen(some), truth) == []


@pytest.mark.parametrize("name", NAMES)
def test_spans_alone_give_agents_and_tokens(name: str) -> None:
    seen, truth = Seen(messages_of(name, "traces")), truth_run(name)

    assert wrong_links(seen, truth) == []
    assert tokens(seen.rounds.values()) == true_tokens(truth) or "terminated" in name
    if name in FINISHED:
        openers = {seen.opener(plan_id) for plan_id in seen.plan_of_agent.values()}
        assert openers == {each["opened_by"]["provider_call_id"] for each in truth["sub_agents"]}


@pytest.mark.parametrize("name", NAMES)
def test_log_records_alone_give_calls_content_and_tokens(name: str) -> None:
    seen, truth = Seen(messages_of(name, "logs")), truth_run(name)

    assert tokens(seen.rounds.values()) == true_tokens(truth) or "terminated" in name
    assert wrong_links(seen, truth) == []
    calls = {call["provider_call_id"]: call for call in seen.calls.values()}
    for true in truth["tool_calls"]:
        if true["name"] != NEVER_SENT and "denied" not in name:  # no event of a denied call
            call = calls[true["provider_call_id"]]
            if name in WITH_CONTENT and name in FINISHED:
                assert json.loads(call["arguments"]) == true["arguments"]


def test_agents_of_a_killed_session_have_inferred_opening_calls() -> None:
    seen, truth = (
        Seen(messages_of("claude-code-killed-content-on")),
        truth_run("claude-code-killed-content-on"),
    )
    for agent in truth["sub_agents"]:
        plan = seen.plans[seen.plan_of_agent[agent["agent_id"]]]
        opener = seen.calls[plan["tool_call_id"]]
        is_open = opener["status"] is Status.RUNNING
        assert plan["inferred"] is is_open
        assert opener["inferred"] is True


def test_open_work_is_interrupted_after_sigterm() -> None:
    seen = Seen(messages_of("claude-code-terminated-content-on"))

    assert {(plan["status"], plan["reason"]) for plan in seen.plans.values()} == {
        (Status.CANCELLED, Reason.INTERRUPTED)
    }
    endings = {call["arguments"]: call["status"] for call in seen.calls.values()}
    assert sorted(endings.values()) == [Status.CANCELLED, Status.CANCELLED, Status.SUCCEEDED]
    assert {plan["summary"] for plan in seen.plans.values()} == {None}
    assert {call["result"] for call in seen.calls.values() if call["name"] == "Agent"} == {None}


@pytest.mark.parametrize("name", NAMES)
def test_calls_with_the_same_provider_call_id_keep_their_own_content(name: str) -> None:
    parts = single(messages_of(name))
    same = [(trace, re.sub(rb"toolu_\w{24}", b"toolu_" + b"0" * 24, part)) for trace, part in parts]

    for run, other in zip(projected(same), projected(parts), strict=True):
        for kind, rows in other.records.items():
            for record_id, row in rows.items():
                found = run.records[kind][record_id]
                names = {field for field, value in row.items() if found[field] != value}
                # A notification of a background agent names the id in the prompt.
                assert names <= {"provider_call_id"} | {
                    *(("user_request",) if kind is Kind.PLAN else ()),
                    *(("request",) if kind is Kind.STEP else ()),
                }


@pytest.mark.parametrize("signals", [(), ("traces",), ("logs",)])
def test_agent_fails_if_its_last_model_call_failed(signals: tuple[str, ...]) -> None:
    seen = Seen(messages_of("claude-code-broken-content-on", *signals))

    (agent,) = (plan for plan in seen.plans.values() if plan["depth"] == 1)
    assert (agent["status"], agent["summary"]) == (Status.FAILED, None)
    assert agent["error_message"] == "The prompt is too odd."
    assert seen.runs[0].whole_run["status"] in (Status.SUCCEEDED, Status.RUNNING)
    assert seen.runs[0].whole_run["failed_calls"] == 1


def test_call_that_the_user_did_not_permit_is_denied() -> None:
    seen = Seen(messages_of("claude-code-denied-content-on"))

    assert {call["name"]: (call["status"], call["reason"]) for call in seen.calls.values()} == {
        "Bash": (Status.FAILED, Reason.DENIED),
        "Read": (Status.SUCCEEDED, None),
    }


def test_background_agent_ends_after_the_interaction_that_started_it() -> None:
    name = "claude-code-background-content-on"
    parts = single(messages_of(name))
    (agent,) = truth_run(name)["sub_agents"]
    seen_running = False
    for end in range(1, len(parts) + 1):
        seen = Seen(parts[:end])
        plan_id = seen.plan_of_agent.get(agent["agent_id"])
        root = seen.plans[seen.runs[0].root_plan_id]
        if plan_id is not None and root["status"] is Status.SUCCEEDED:
            assert seen.plans[plan_id]["status"] in (Status.RUNNING, Status.SUCCEEDED)
            seen_running = seen_running or seen.plans[plan_id]["status"] is Status.RUNNING
        assert root["status"] is not Status.CANCELLED
    assert seen_running
