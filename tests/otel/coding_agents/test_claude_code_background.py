"""Claude Code 2.1.332: sub-agents in the background, and the runs that follow when they end."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tests.otel.coding_agents.captured import CAPTURES, Message, messages_of, projected, single
from tests.otel.coding_agents.test_claude_code import Seen, truth_run, wrong_links
from tests.otel.projections import Projected, differences
from tests.otel.wire import bytes_field
from tests.profiles import beginnings
from tracer.otel.otlp.spans import attributes_of, logs_of
from tracer.records import Kind, Status

NAMES = sorted(
    folder.name for folder in CAPTURES.iterdir() if folder.name.startswith("claude-code-2.1.332-")
)
KILLED = "claude-code-2.1.332-killed-content-on"
TURNS = "claude-code-2.1.332-turns-content-on"
AROUND = bytes(range(1, 9))
"""The id of the span that `TRACEPARENT` names."""


def cost_of(runs: list[Projected]) -> Decimal:
    return sum((run.whole_run["cost_usd"] for run in runs), Decimal(0))


def attributes_of_spans(messages: list[Message], name: str) -> dict[bytes, dict[str, Any]]:
    return {
        span.span_id: attributes_of(span.attributes)
        for _, message in messages
        for resource in TracesData.FromString(message).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
        if span.name == f"claude_code.{name}"
    }


@pytest.mark.parametrize("name", NAMES)
def test_each_prompt_is_a_run_that_names_the_calls_that_it_follows(name: str) -> None:
    seen, truth = Seen(messages_of(name)), truth_run(name)

    runs = [run.whole_run for run in seen.runs]
    assert [run["follows_keys"] for run in runs] == [each["follows"] for each in truth["prompts"]]
    assert [run["prompt_number"] for run in runs] == list(range(1, len(runs) + 1))
    assert {run["prompt_sequence"] for run in runs} == {None}  # the texts are known
    for run, prompt in zip(seen.runs, truth["prompts"], strict=True):
        plan = run.records[Kind.PLAN][run.root_plan_id]
        summaries = [each["summary"] for each in prompt["notifications"]]
        assert plan["user_request"] == prompt["text"]
        assert plan["title"] == (prompt["text"] or summaries[0])
        assert "<task-notification>" not in str(run.records)
    if truth["total_cost_usd"] is not None:
        assert cost_of(seen.runs) == pytest.approx(
            Decimal(truth["total_cost_usd"]), abs=Decimal("1e-9")
        )


@pytest.mark.parametrize("name", NAMES)
def test_each_call_is_in_the_round_that_requested_it(name: str) -> None:
    messages = messages_of(name)
    seen = Seen(messages)
    requests = attributes_of_spans(messages, "llm_request")
    round_of = {
        attributes["request_id"]: record_id
        for run in seen.runs
        for span_id, (_, record_id) in run.record_of.items()
        if (attributes := requests.get(span_id)) is not None
    }
    requested_by = {
        record.attributes["tool_use_id"]: record.attributes["request_id"]
        for _, message in messages
        for record in logs_of([message])
        if record.name.endswith("tool_decision")
    }
    for call in seen.calls.values():
        assert call["think_act_id"] == round_of[requested_by[call["provider_call_id"]]]
        assert not call["inferred"]


@pytest.mark.parametrize("name", NAMES)
def test_calls_name_their_agents_and_the_end_of_those_in_the_background(name: str) -> None:
    seen, truth = Seen(messages_of(name)), truth_run(name)

    ended = {
        record.attributes["agent_id"]: record.attributes["event.sequence"]
        for _, message in messages_of(name)
        for record in logs_of([message])
        if record.name.endswith("subagent_completed") and record.attributes["is_async"]
    }
    calls = {call["provider_call_id"]: call for call in seen.calls.values()}
    for agent in truth["sub_agents"]:
        call = calls[agent["opened_by"]["provider_call_id"]]
        assert call["agent_key"] == agent["agent_id"]
        assert call["agent_end_sequence"] == ended.get(agent["agent_id"])


@pytest.mark.parametrize("name", NAMES)
def test_rounds_have_finish_reasons_providers_and_the_time_of_the_first_token(name: str) -> None:
    seen, truth = Seen(messages_of(name)), truth_run(name)

    reasons = sorted(call["stop_reason"] for call in truth["model_calls"])
    assert sorted(each["finish_reasons"][0] for each in seen.rounds.values()) == reasons
    for each in seen.rounds.values():
        assert each["provider"] == "anthropic"
        assert each["started_at"] < each["first_token_at"] <= each["finished_at"]


@pytest.mark.parametrize("name", NAMES)
def test_run_is_running_while_a_sub_agent_is(name: str) -> None:
    messages = messages_of(name)
    statuses = set()
    for end in range(1, len(messages) + 1):
        for run in projected(messages[:end]):
            plans = run.records[Kind.PLAN].values()
            root = run.records[Kind.PLAN][run.root_plan_id]
            if root["finished_at"] is None:
                continue
            ends = [plan["finished_at"] for plan in plans if plan["status"] is not Status.UNKNOWN]
            expected = (Status.RUNNING, None) if None in ends else (root["status"], max(ends))
            assert (run.whole_run["status"], run.whole_run["finished_at"]) == expected
            statuses.add(run.whole_run["status"])
    assert statuses == {Status.RUNNING, Status.SUCCEEDED}


def test_work_of_a_killed_session_stays_open() -> None:
    seen, truth = Seen(messages_of(KILLED)), truth_run(KILLED)

    calls = {call["provider_call_id"]: call for call in seen.calls.values()}
    for true in truth["tool_calls"]:
        is_open = true["status"] == "interrupted"
        call = calls[true["provider_call_id"]]
        assert call["status"] is (Status.RUNNING if is_open else Status.SUCCEEDED)
        assert true["arguments"]["description"] in call["arguments"]
    open_plans = [plan for plan in seen.plans.values() if plan["status"] is Status.RUNNING]
    assert [plan["title"] for plan in open_plans] == ["[killed/a] Work until killed."]
    assert seen.runs[0].whole_run["status"] is Status.RUNNING


@pytest.mark.parametrize("name", NAMES)
def test_log_records_alone_place_the_calls_of_each_agent(name: str) -> None:
    seen, truth = Seen(messages_of(name, "logs")), truth_run(name)

    key_of = {
        plan_id: call["agent_key"]
        for plan_id, plan in seen.plans.items()
        if (call := seen.calls.get(plan["tool_call_id"])) is not None
    }
    assert set(key_of.values()) <= {agent["agent_id"] for agent in truth["sub_agents"]}
    plan_of = {
        call["provider_call_id"]: seen.steps[call["step_id"]]["plan_id"]
        for call in seen.calls.values()
    }
    by_agent: dict[str, set[Any]] = {}
    for call in truth["tool_calls"]:
        if (plan_id := plan_of.get(call["provider_call_id"])) is not None:
            by_agent.setdefault(f"{call['agent_id']} {call['prompt']}", set()).add(plan_id)
    assert all(len(plans) == 1 for plans in by_agent.values())


def in_one_trace(messages: list[Message]) -> list[Message]:
    """Return the parts of a session as if `TRACEPARENT` had been set."""
    traces = {
        trace_id for trace_id, message in messages if TracesData.FromString(message).resource_spans
    }
    first = min(traces)
    changed = []
    for trace_id, part in single(messages):
        message = part
        for each in traces:
            message = message.replace(each, first)
        data = TracesData.FromString(message)
        spans = [
            span
            for each in data.resource_spans
            for scope in each.scope_spans
            for span in scope.spans
        ]
        for span in spans:
            if span.name == "claude_code.interaction":
                span.parent_span_id = AROUND
        if spans:
            message = data.SerializeToString()
        changed.append((first if trace_id in traces else trace_id, message))
    return changed


def test_prompts_below_a_traceparent_are_plans_of_one_run() -> None:
    messages, truth = in_one_trace(messages_of(TURNS)), truth_run(TURNS)

    (run,) = projected(messages)
    plans = run.records[Kind.PLAN]
    calls = run.records[Kind.TOOL_CALL]
    prompts = sorted(
        (
            plan
            for plan_id, plan in plans.items()
            if plan["agent_name"] == "claude_code" and plan_id != run.root_plan_id
        ),
        key=lambda plan: plan["started_at"],
    )
    assert [plan["title"] for plan in prompts] == [
        each["text"] or each["notifications"][0]["summary"] for each in truth["prompts"]
    ]
    for plan, prompt in zip(prompts, truth["prompts"], strict=True):
        call = calls.get(plan["tool_call_id"])
        assert ([call["provider_call_id"]] if call else []) == prompt["follows"]
        assert call is not None or plan["parent_plan_id"] == run.root_plan_id
    assert wrong_links(Seen(messages), truth) == []
    assert cost_of([run]) == pytest.approx(Decimal(truth["total_cost_usd"]), abs=Decimal("1e-9"))
    assert run.whole_run["title"] == truth["prompts"][0]["text"]
    assert plans[run.root_plan_id]["summary"] == truth["final_answer"]
    agents = {agent["opened_by"]["provider_call_id"]: agent for agent in truth["sub_agents"]}
    for call in calls.values():
        key = agents.get(call["provider_call_id"], {}).get("agent_id")
        assert (call["agent_key"], call["continued_plan_id"]) == (key, None)
        assert (call["agent_end_sequence"] is None) == (key is None)
    chance = random.Random(0)
    for _ in range(3):
        (other,) = projected(chance.sample(messages, len(messages)))
        assert differences(other, run) == []
    for end in beginnings(len(messages), 30):
        assert wrong_links(Seen(messages[:end]), truth) == []


def test_only_prompt_below_a_traceparent_is_the_root() -> None:
    messages = in_one_trace(messages_of("claude-code-single-content-on"))

    (run,) = projected(messages)
    root = run.records[Kind.PLAN][run.root_plan_id]
    assert (root["agent_name"], root["inferred"]) == ("claude_code", False)
    assert len(run.records[Kind.PLAN]) == 2


def changed_spans(
    messages: list[Message], change: Callable[[WireSpan], list[WireSpan]]
) -> list[Message]:
    """Return the parts of a session with each span replaced by those that `change` returns."""
    changed = []
    for trace_id, part in single(messages):
        data = TracesData.FromString(part)
        scopes = [scope for each in data.resource_spans for scope in each.scope_spans]
        for scope in scopes:
            spans = [new for span in scope.spans for new in change(span)]
            del scope.spans[:]
            scope.spans.extend(spans)
        changed.append((trace_id, data.SerializeToString() if scopes else part))
    return changed


@pytest.mark.parametrize("kind", ["subagent.spawn", "compaction", "a.kind.of.the.future"])
@pytest.mark.parametrize("name", [NAMES[-1], NAMES[-3]])
def test_spans_of_other_kinds_are_no_parents(name: str, kind: str) -> None:
    def put_between(span: WireSpan) -> list[WireSpan]:
        if span.name not in ("claude_code.llm_request", "claude_code.tool"):
            return [span]
        between = WireSpan()
        between.CopyFrom(span)
        between.name = f"claude_code.{kind}"
        between.span_id = bytes(255 - byte for byte in span.span_id)
        del between.attributes[:]
        span.parent_span_id = between.span_id
        return [between, span]

    truth = truth_run(name)
    messages = changed_spans(messages_of(name), put_between)
    found, expected = Seen(messages), Seen(messages_of(name))
    assert {run.root_plan_id: run.whole_run for run in found.runs} == {
        run.root_plan_id: run.whole_run for run in expected.runs
    }
    for rows, same in ((found.plans, expected.plans), (found.calls, expected.calls)):
        assert {key: links_of(row) for key, row in rows.items()} == {
            key: links_of(row) for key, row in same.items()
        }
    for end in beginnings(len(messages), 20):
        assert wrong_links(Seen(messages[:end]), truth) == []


def links_of(row: dict[str, Any]) -> dict[str, Any]:
    names = ("parent_plan_id", "tool_call_id", "step_id", "think_act_id", "inferred", "status")
    return {name: row[name] for name in names if name in row}


TEXTS = frozenset(
    "tool_input tool_parameters full_command file_path response prompt_text subagent_type".split()
)


@pytest.mark.parametrize("name", NAMES)
def test_links_are_the_same_without_content(name: str) -> None:
    found, expected = Seen(without_content(messages_of(name))), Seen(messages_of(name))
    for rows, same in ((found.plans, expected.plans), (found.calls, expected.calls)):
        assert {key: links_of(row) for key, row in rows.items()} == {
            key: links_of(row) for key, row in same.items()
        }
    assert {plan["user_request"] for plan in found.plans.values()} == {None}
    sequences = [run.whole_run["prompt_sequence"] for run in found.runs]
    assert sequences == sorted(sequences)
    numbers = ("prompt_number", "cost_usd", "status")
    for run, other in zip(found.runs, expected.runs, strict=True):
        assert [run.whole_run[each] for each in numbers] == [
            other.whole_run[each] for each in numbers
        ]
        assert run.whole_run["follows_keys"] == []


def without_content(messages: list[Message]) -> list[Message]:
    """Return the parts of a session as if its content had been off, each item alone."""

    def redact(span: WireSpan) -> list[WireSpan]:
        redact_attributes(span.attributes)
        del span.events[:]
        return [span]

    changed = []
    for trace_id, message in changed_spans(messages, redact):
        part = message
        for record in logs_of([part]):
            around = ResourceLogs.FromString(record.sent)
            redact_attributes(around.scope_logs[0].log_records[0].attributes)
            part = bytes_field(2, around.SerializeToString())
        changed.append((trace_id, part))
    return changed


def redact_attributes(attributes: Any) -> None:
    kept = [each for each in attributes if each.key not in TEXTS]
    for each in kept:
        if each.key in ("prompt", "user_prompt"):
            each.value.string_value = "<REDACTED>"
    del attributes[:]
    attributes.extend(kept)
