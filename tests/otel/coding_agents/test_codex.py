"""Codex CLI: captured runs give the expected records, in any order and from each signal alone."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as WireLogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tests.house import project_files
from tests.otel.coding_agents.captured import (
    Message,
    messages_of,
    projected,
    single,
    truth_of,
)
from tests.otel.projections import Projected, differences
from tests.profiles import beginnings, quick_among, scaled
from tracer.otel.otlp.blocks import sent_spans
from tracer.otel.otlp.spans import StoredMessage, logs_in
from tracer.records import Kind, Status
from tracer.records.merge import Fields

FINISHED = (
    "codex-two-tools",
    "codex-failing-tool",
    "codex-parallel-subagents",
    "codex-parallel-subagents-sameids",
    "codex-parallel-subagents-v2",
)
KILLED = ("codex-crash", "codex-crash-late")
NAMES = FINISHED + KILLED
QUICK = ("codex-parallel-subagents", "codex-crash-late")
"""The captures whose orders are compared in the quick profile."""
ROOT = "/root"
"""The path of the main agent."""


@cache
def singles(name: str, *signals: str) -> tuple[Message, ...]:
    return tuple(single(messages_of(name, *signals)))


@cache
def run_of(name: str, *signals: str) -> Projected:
    """Return the only run of a capture: its other traces are no agent work."""
    (run,) = projected(singles(name, *signals))
    return run


def changed(
    messages: Sequence[Message],
    span: Callable[[WireSpan], object] = lambda _: None,
    record: Callable[[WireLogRecord], object] = lambda _: None,
) -> list[Message]:
    """Return single messages with a change of each span and log record."""
    found = []
    for trace_id, message in messages:
        data = StoredMessage.FromString(message)
        for resource_spans in data.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                for each in scope_spans.spans:
                    span(each)
        for resource_logs in data.resource_logs:
            for scope_logs in resource_logs.scope_logs:
                for each_record in scope_logs.log_records:
                    record(each_record)
        found.append((trace_id, data.SerializeToString()))
    return found


def attribute(wire: WireSpan | WireLogRecord, name: str) -> Any:
    return next((each.value for each in wire.attributes if each.key == name), None)


# --- The truth -----------------------------------------------------------------------------------


def agent_paths(run: Projected) -> dict[UUID, str]:
    """Return for each plan the name that the truth gives its agent, by the task."""
    calls = run.records[Kind.TOOL_CALL]
    paths = {}
    for plan_id, plan in run.records[Kind.PLAN].items():
        opener = calls.get(plan["tool_call_id"])
        text = json.dumps([opener["arguments"] if opener else None, plan["user_request"]])
        paths[plan_id] = "main" if opener is None else "moons" if "moons" in text else "rings"
    return paths


def call_facts(run: Projected) -> list[tuple[Any, ...]]:
    """Return of each call: agent, name, provider's id, status, arguments, result."""
    agents, steps = agent_paths(run), run.records[Kind.STEP]
    return sorted(
        (
            agents[steps[call["step_id"]]["plan_id"]],
            call["name"],
            call["provider_call_id"],
            call["status"].value,
            json.dumps(json.loads(call["arguments"])) if call["arguments"] else "",
            call["result"] or "",
        )
        for call in run.records[Kind.TOOL_CALL].values()
    )


def expected_calls(truth: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the calls of the truth. Codex exports only the name of a call that was killed."""
    return sorted(
        (
            call["agent"],
            call["name"],
            call["provider_call_id"],
            "running" if call["status"] == "interrupted" else call["status"],
            "" if call["status"] == "interrupted" else json.dumps(call["arguments"]),
            call["result_sent_to_model"] or "",
        )
        for call in truth["runs"][0]["tool_calls"]
    )


def round_facts(run: Projected) -> list[tuple[Any, ...]]:
    agents, steps = agent_paths(run), run.records[Kind.STEP]
    return sorted(
        (
            agents[steps[each["step_id"]]["plan_id"]],
            each["input_tokens"],
            each["output_tokens"],
            each["model"],
            each["status"].value,
        )
        for each in run.records[Kind.THINK_ACT].values()
    )


def expected_rounds(truth: dict[str, Any]) -> list[tuple[Any, ...]]:
    return sorted(
        (call["agent"], call["input"], call["output"], "gpt-5.1-codex", "succeeded")
        for call in truth["runs"][0]["model_calls"]
    )


@pytest.mark.parametrize("name", NAMES)
def test_captured_run_has_the_expected_agents_calls_and_tokens(name: str) -> None:
    run, truth = run_of(name), truth_of(name)["runs"][0]

    plans = run.records[Kind.PLAN].values()
    calls = run.records[Kind.TOOL_CALL]
    assert call_facts(run) == expected_calls(truth_of(name))
    assert round_facts(run) == expected_rounds(truth_of(name))
    assert run.whole_run["input_tokens"] == truth["input_tokens"]
    assert run.whole_run["output_tokens"] == truth["output_tokens"]
    assert run.whole_run["title"] == truth["prompt"]
    assert run.whole_run["session_id"] == truth["model_calls"][0]["thread"]
    assert run.whole_run["status"] is (Status.RUNNING if name in KILLED else Status.SUCCEEDED)
    assert sorted(
        json.loads(calls[plan["tool_call_id"]]["arguments"])["message"]
        for plan in plans
        if plan["tool_call_id"]
    ) == sorted(agent["opened_by"]["arguments"]["message"] for agent in truth["sub_agents"])
    assert len(plans) == 1 + len(truth["sub_agents"])
    assert not any(plan["inferred"] for plan in plans)
    assert run.whole_run["unread_spans"] == 0


@pytest.mark.parametrize("name", ["codex-parallel-subagents", "codex-parallel-subagents-v2"])
def test_sub_agents_have_their_names_and_requests(name: str) -> None:
    plans = [plan for plan in run_of(name).records[Kind.PLAN].values() if plan["tool_call_id"]]

    assert {plan["user_request"] for plan in plans} == {
        "[run 0] task A: count the moons of Jupiter.",
        "[run 0] task B: count the rings of Saturn.",
    }
    assert {plan["agent_name"] for plan in plans} in (
        {"Helmholtz", "Volta"},
        {f"{ROOT}/moons", f"{ROOT}/rings"},
    )
    if name == "codex-parallel-subagents":  # the other version exports no answers
        assert "moons counted" in {plan["summary"] for plan in plans}


@pytest.mark.parametrize("name", FINISHED)
def test_call_belongs_to_the_round_whose_span_contains_it(name: str) -> None:
    calls = run_of(name).records[Kind.TOOL_CALL].values()

    assert all(call["think_act_id"] and not call["inferred"] for call in calls)


# --- One signal alone ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FINISHED, "codex-crash-late"])
def test_traces_alone_give_lineage_and_tokens(name: str) -> None:
    whole, run = run_of(name), run_of(name, "traces")

    links: Sequence[str] = (
        "step_id",
        "think_act_id",
        "parent_tool_call_id",
        "name",
        "provider_call_id",
    )
    assert _only(run, Kind.TOOL_CALL, links) == _only(whole, Kind.TOOL_CALL, links)
    links = ("parent_plan_id", "tool_call_id", "depth", "inferred")
    assert _only(run, Kind.PLAN, links) == _only(whole, Kind.PLAN, links)
    assert run.records[Kind.THINK_ACT] == whole.records[Kind.THINK_ACT]
    assert not any(call["arguments"] for call in run.records[Kind.TOOL_CALL].values())


@pytest.mark.parametrize("name", NAMES)
def test_log_records_alone_give_content_lineage_and_tokens_with_the_same_ids(name: str) -> None:
    whole, run = run_of(name), run_of(name, "logs")

    links: Sequence[str] = (
        "step_id",
        "think_act_id",
        "name",
        "provider_call_id",
        "arguments",
        "result",
    )
    assert _only(run, Kind.TOOL_CALL, links) == _only(whole, Kind.TOOL_CALL, links)
    links = ("parent_plan_id", "tool_call_id", "depth", "agent_name", "user_request", "title")
    assert _only(run, Kind.PLAN, links) == _only(whole, Kind.PLAN, links)
    links = ("step_id", "model", "input_tokens", "output_tokens", "status")
    assert _only(run, Kind.THINK_ACT, links) == _only(whole, Kind.THINK_ACT, links)
    assert not any(plan["inferred"] for plan in run.records[Kind.PLAN].values())


def _only(run: Projected, kind: Kind, names: Sequence[str]) -> dict[UUID, Fields]:
    return {
        record_id: {name: fields[name] for name in names}
        for record_id, fields in run.records[kind].items()
    }


# --- Any order -----------------------------------------------------------------------------------


def in_orders(messages: Sequence[Message], logs: Sequence[Message]) -> dict[str, list[Message]]:
    spans = [each for each in messages if each not in set(logs)]
    orders = {
        "reversed": [*reversed(messages)],
        "logs first": [*logs, *spans],
        "logs last": [*spans, *logs],
        "repeated": [*messages, *reversed(messages)],
    }
    for seed in range(3):
        orders[f"shuffled {seed}"] = random.Random(seed).sample(messages, len(messages))
    return orders


@pytest.mark.parametrize("name", quick_among(NAMES, QUICK))
def test_a_capture_in_any_order_gives_the_same_records(name: str) -> None:
    for order, messages in in_orders(singles(name), singles(name, "logs")).items():
        (run,) = projected(messages)
        assert differences(run, run_of(name)) == [], order


@settings(max_examples=scaled(10))
@given(st.randoms(use_true_random=False), st.sampled_from(("codex-two-tools", *KILLED)))
def test_records_are_equal_if_an_export_is_reordered_split_or_repeated(
    chance: random.Random, name: str
) -> None:
    messages = [*singles(name), *chance.sample(singles(name), len(singles(name)) // 3)]
    chance.shuffle(messages)
    joined: dict[tuple[bytes, int], bytes] = {}
    for trace_id, message in messages:
        key = trace_id, chance.randrange(9)
        joined[key] = joined.get(key, b"") + message

    (run,) = projected([(trace_id, message) for (trace_id, _), message in joined.items()])

    assert differences(run, run_of(name)) == []


@pytest.mark.parametrize("name", quick_among(("codex-parallel-subagents", *KILLED), QUICK[:1]))
def test_no_prefix_of_an_export_gives_a_wrong_link(name: str) -> None:
    """No link, in whatever prefix, is another one than in the end; ids stay as they are."""
    whole = run_of(name)
    logs, every = singles(name, "logs"), singles(name)
    spans = [each for each in every if each not in set(logs)]
    for messages in (every, [*logs, *spans], [*spans, *logs]):
        for size in beginnings(len(messages), 40):
            for run in projected(messages[:size]):
                assert _wrong_links(run, whole) == []


def _wrong_links(run: Projected, whole: Projected) -> list[str]:
    links = {
        Kind.PLAN: ("tool_call_id", "parent_plan_id"),
        Kind.THINK_ACT: ("input_tokens", "output_tokens"),
        Kind.TOOL_CALL: ("think_act_id", "arguments", "result"),
    }
    return [
        f"{kind} {record_id} {name}"
        for kind, names in links.items()
        for record_id, fields in run.records[kind].items()
        for name in names
        if fields[name] is not None
        and fields[name] != whole.records[kind].get(record_id, {}).get(name)
    ]


@pytest.mark.parametrize("name", ["codex-crash-late", "codex-two-tools"])
def test_shuffled_items_are_projected_after_each_one(name: str) -> None:
    messages = random.Random(1).sample(singles(name), len(singles(name)))
    for size in beginnings(len(messages), 60):
        projected(messages[:size])


# --- Kinds of runs that no capture has -----------------------------------------------------------


def test_tokens_of_other_turns_of_the_conversation_are_not_counted() -> None:
    logs = singles("codex-crash", "logs")
    later = changed(
        [each for each in logs if each[0] != run_of("codex-crash").root_plan_id.bytes],
        record=lambda wire: _move(wire, 10**12),
    )

    (run,) = projected([*logs, *later])

    assert run.whole_run["input_tokens"] == 2403


def _move(wire: WireLogRecord, nanoseconds: int) -> None:
    wire.time_unix_nano += nanoseconds
    wire.observed_time_unix_nano += nanoseconds


def test_interrupted_request_does_not_get_the_answer_of_the_next_request() -> None:
    """The turn died before its second answer; the conversation was resumed in another trace."""
    second = [record for record in _records("codex-crash") if record.name == "codex.api_request"][1]

    def is_known(message: bytes) -> bool:
        (record,) = logs_in(StoredMessage.FromString(message))
        return any(record.trace_id) or record.time < second.time

    logs = [each for each in singles("codex-crash", "logs") if is_known(each[1])]
    answers = [each for each in singles("codex-crash", "logs") if not is_known(each[1])]
    resumed = changed(answers, record=lambda wire: _move(wire, 10**12))
    began = changed(answers[:1], record=lambda wire: _move(wire, 0))

    (run,) = projected([*logs, *began, *resumed])

    assert run.whole_run["input_tokens"] == 1101


def _records(name: str) -> list[Any]:
    return [
        record
        for _, message in singles(name, "logs")
        for record in logs_in(StoredMessage.FromString(message))
    ]


def test_request_is_null_if_the_prompt_is_not_logged() -> None:
    def redact(wire: WireLogRecord) -> None:
        prompt = attribute(wire, "prompt")
        if prompt is not None:
            prompt.string_value = "[REDACTED]"

    (run,) = projected(changed(singles("codex-two-tools"), record=redact))

    (plan,) = run.records[Kind.PLAN].values()
    assert (plan["title"], plan["user_request"]) == (None, None)


def test_failed_model_request_is_a_failed_round() -> None:
    def fail(wire: WireLogRecord) -> None:
        status = attribute(wire, "http.response.status_code")
        if status is not None:
            status.int_value = 500

    logs = [
        each
        for each in changed(singles("codex-crash", "logs"), record=fail)
        if each[0] == run_of("codex-crash").root_plan_id.bytes
    ]
    (run,) = projected(logs)

    rounds = run.records[Kind.THINK_ACT].values()
    assert {(each["status"], each["error_message"]) for each in rounds} == {
        (Status.FAILED, "HTTP status 500")
    }


def test_failed_calls_show_their_messages() -> None:
    calls = _in_order([run_of("codex-failing-tool")])

    assert [call["error_message"] for call in calls] == [
        "cat: missing.txt: No such file or directory",
        "unable to locate image at `/srv/demo2/missing.png`: No such file or directory"
        " (os error 2)",
    ]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (
            "apply_patch verification failed: Failed to read file to update absent.txt",
            "apply_patch verification failed: Failed to read file to update absent.txt",
        ),
        ('{"output": "no such file\\n", "metadata": {"exit_code": 2}}', "no such file"),
        ("Exit code: 3\nWall time: 0.1 seconds\nOutput:\n", "The command exited with code 3."),
    ],
)
def test_message_of_a_failed_call_lacks_the_lines_of_codex(output: str, message: str) -> None:
    def replace(wire: WireLogRecord) -> None:
        if (result := attribute(wire, "output")) is not None:
            result.string_value = output
            attribute(wire, "success").string_value = "false"

    messages = changed(singles("codex-failing-tool"), record=replace)

    assert {call["error_message"] for call in _in_order(projected(messages))} == {message}


def test_an_aborted_call_is_cancelled() -> None:
    def abort(wire: WireSpan) -> None:
        aborted = attribute(wire, "aborted")
        if aborted is not None:
            aborted.bool_value = True

    (run,) = projected(changed(singles("codex-two-tools", "traces"), span=abort))

    calls = run.records[Kind.TOOL_CALL].values()
    assert {call["status"] for call in calls} == {Status.CANCELLED}


def test_call_without_a_result_in_a_finished_turn_is_interrupted() -> None:
    lost = {"codex.tool_result"}
    spans = [
        each for each in singles("codex-two-tools", "traces") if b"codex.tool.phase" not in each[1]
    ]
    logs = [
        each
        for each in singles("codex-two-tools", "logs")
        if next(logs_in(StoredMessage.FromString(each[1]))).name not in lost
    ]

    (run,) = projected([*spans, *logs])

    calls = run.records[Kind.TOOL_CALL].values()
    assert {(call["status"], call["reason"]) for call in calls} == {
        (Status.CANCELLED, "interrupted")
    }
    assert all(call["finished_at"] for call in calls)


def test_repeated_call_ids_in_a_conversation_are_separate_calls() -> None:
    def rename(wire: WireSpan | WireLogRecord) -> None:
        call_id = attribute(wire, "call_id")
        if call_id is not None:
            call_id.string_value = "call_0"

    messages = changed(singles("codex-two-tools"), rename, rename)

    assert [call["arguments"] for call in _in_order(projected(messages))] == [
        call["arguments"] for call in _in_order([run_of("codex-two-tools")])
    ]


def _in_order(runs: Sequence[Projected]) -> list[Fields]:
    (run,) = runs
    return sorted(run.records[Kind.TOOL_CALL].values(), key=lambda call: call["started_at"])


@pytest.mark.parametrize("name", ["codex-crash", "codex-crash-late", "codex-two-tools"])
@pytest.mark.parametrize("seed", quick_among(range(8), range(2)))
def test_attributes_and_span_links_of_any_type_are_projected(seed: int, name: str) -> None:
    """Hostile items: attributes that miss or are others', parents in circles, equal times."""
    chance = random.Random(seed)
    messages = list(singles(name))
    spans = [each for each in messages if TracesData.FromString(each[1]).resource_spans]
    ids = [
        TracesData.FromString(message).resource_spans[0].scope_spans[0].spans[0].span_id
        for _, message in spans
    ]

    def spoil(wire: WireSpan | WireLogRecord) -> None:
        for each in wire.attributes:
            match chance.randrange(12):
                case 0:
                    each.value.Clear()
                case 1:
                    each.value.int_value = chance.choice((-1, 0, 2**62))
                case 2:
                    each.key = chance.choice(("turn.id", "call_id", "conversation.id", "x"))
                case 3:
                    each.value.array_value.values.add().string_value = "x"

    def spoil_span(wire: WireSpan) -> None:
        spoil(wire)
        if ids and chance.random() < 0.2:
            wire.parent_span_id = chance.choice(ids)
        if chance.random() < 0.1:
            wire.start_time_unix_nano = wire.end_time_unix_nano = chance.choice((0, 1))

    def spoil_record(wire: WireLogRecord) -> None:
        spoil(wire)
        if chance.random() < 0.2:
            wire.span_id = chance.choice(ids) if ids else b""

    spoiled = changed(messages, spoil_span, spoil_record)
    first = projected(spoiled)

    chance.shuffle(spoiled)
    again = {run.root_plan_id: run for run in projected(spoiled)}
    assert [differences(run, again[run.root_plan_id]) for run in first] == [[]] * len(first)


def test_documented_collector_filter_keeps_the_records_and_removes_most_spans() -> None:
    limits = (project_files.ROOT / "docs" / "explanation" / "limits.md").read_text("utf-8")
    [pattern] = re.findall(r'IsMatch\(name, "(.+)"\)', limits)
    for name in ("codex-two-tools", "codex-parallel-subagents"):
        messages = single(messages_of(name))
        left = [
            message
            for message in messages
            if not any(re.search(pattern, span.name) for span in sent_spans(message[1]))
        ]

        assert len(left) < 0.4 * len(messages)
        found, expected = (
            [(run.whole_run, run.records) for run in projected(each)] for each in (left, messages)
        )
        assert found == expected
