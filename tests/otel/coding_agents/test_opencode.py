"""OpenCode: captured runs, complete and in part, give the records of what really happened."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.otel.coding_agents.captured import (
    Message,
    messages_of,
    projected,
    single,
    truth_of,
)
from tests.otel.made_traces import TRACE_ID, body_of, make_span
from tests.otel.projections import Projected, differences, project_messages, split
from tests.profiles import beginnings, quick_among
from tracer.otel.dialects.opencode import IN_FLIGHT, SCOPE
from tracer.otel.otlp import decode_json, decode_logs_json
from tracer.otel.otlp.blocks import sent_spans
from tracer.otel.otlp.spans import StoredMessage, logs_in
from tracer.records import Kind, Status
from tracer.records.arguments import canonical
from tracer.records.merge import Fields

COMPLETE = [
    "opencode-two-tools-served",
    "opencode-parallel-subagents-served",
    "opencode-failing-tool-served",
    "opencode-nested-served",
    "opencode-twins-served",
    "opencode-resumed-served",
]
STOPPED = ["opencode-abort-served", "opencode-apifail-served"]
CUT_SHORT = ["opencode-subagent", "opencode-crash"]
TURNS = "opencode-turns-served"
ALL = [*COMPLETE, *STOPPED, *CUT_SHORT, TURNS]
QUICK = ["opencode-twins-served", "opencode-subagent"]
QUICK_OR_THOROUGH = quick_among(ALL, QUICK)


class Seen:
    """A projected run, with the sessions that its plans were the work of."""

    def __init__(self, run: Projected, sessions: Mapping[bytes, str]) -> None:
        self.run = run
        self.plans, self.steps, self.rounds, self.calls = (
            run.records[kind] for kind in (Kind.PLAN, Kind.STEP, Kind.THINK_ACT, Kind.TOOL_CALL)
        )
        self.sessions: dict[UUID, set[str]] = {}
        for span_id, (kind, record_id) in run.record_of.items():
            if span_id in sessions and kind in (Kind.THINK_ACT, Kind.TOOL_CALL):
                row = run.records[kind][record_id]
                self.sessions.setdefault(self.plan_of(row), set()).add(sessions[span_id])

    def plan_of(self, row: Fields) -> UUID:
        found: UUID = self.steps[row["step_id"]]["plan_id"]
        return found

    def opened(self) -> dict[UUID, Fields]:
        """Return the plans that a call opened, with that call."""
        return {
            plan_id: self.calls[plan["tool_call_id"]]
            for plan_id, plan in self.plans.items()
            if plan["tool_call_id"] is not None
        }

    def tokens(self, plan_id: UUID) -> tuple[int, int]:
        rounds = [row for row in self.rounds.values() if self.plan_of(row) == plan_id]
        return (
            sum(row["input_tokens"] or 0 for row in rounds),
            sum(row["output_tokens"] or 0 for row in rounds),
        )


def sessions_of(messages: Iterable[Message]) -> dict[bytes, str]:
    """Return the session that each span names."""
    return {
        span.span_id: span.attributes["session.id"]
        for _, message in messages
        for span in sent_spans(message)
        if "session.id" in span.attributes
    }


def seen(messages: list[Message]) -> Seen:
    (run,) = projected(messages)
    return Seen(run, sessions_of(messages))


@cache
def seen_capture(name: str) -> Seen:
    return seen(messages_of(name))


def links(run: Seen) -> set[tuple[str, str, str | None, str | None]]:
    """Return for each plan that a call opened: its session, the call's session, name and id."""
    found = set()
    for plan_id, call in run.opened().items():
        for child in run.sessions.get(plan_id, ()):
            for parent in run.sessions.get(run.plan_of(call), ()):
                found.add((child, parent, call["name"], call["provider_call_id"]))
    return found


# --- What really happened ------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPLETE)
def test_complete_run_has_the_expected_agents_calls_and_contents(name: str) -> None:
    (truth,) = truth_of(name)["runs"]
    run = seen_capture(name)
    root = run.plans[run.run.root_plan_id]
    assert root["title"] == root["user_request"] == truth["prompt"]
    assert (root["agent_name"], root["summary"]) == ("build", truth["final_answer"])
    assert (root["status"], root["inferred"]) == (Status.SUCCEEDED, False)
    whole = run.run.whole_run
    assert (whole["input_tokens"], whole["output_tokens"]) == (
        truth["input_tokens"],
        truth["output_tokens"],
    )
    assert run.tokens(run.run.root_plan_id) == (
        truth["planner_own_input_tokens"],
        truth["planner_own_output_tokens"],
    )
    calls = Counter(
        (
            *(call["name"], canonical(call["arguments"])),
            *(call["provider_call_id"], call["status"].value),
            call["result"] if call["result"] is not None else call["error_message"],
        )
        for call in run.calls.values()
    )
    assert calls == Counter(
        (
            *(call["name"], canonical(json.dumps(call["arguments"]))),
            *(call["provider_call_id"], call["status"], call["result_sent_to_model"]),
        )
        for call in truth["tool_calls"]
    )
    assert not any(row["inferred"] for row in (*run.plans.values(), *run.calls.values()))
    assert Counter(
        (run.tokens(plan_id), canonical(call["arguments"]))
        for plan_id, call in run.opened().items()
    ) == Counter(
        (
            (each["input_tokens"], each["output_tokens"]),
            canonical(json.dumps(each["opened_by"]["arguments"])),
        )
        for each in truth["sub_agents"]
    )


@pytest.mark.parametrize("name", ["opencode-twins-served", "opencode-nested-served"])
def test_sub_agent_is_below_the_call_whose_result_names_its_session(name: str) -> None:
    run = seen_capture(name)
    assert len(run.opened()) == 2
    for plan_id, call in run.opened().items():
        (session,) = run.sessions[plan_id]
        assert f'<task id="{session}"' in call["result"]


def test_session_that_a_second_call_resumes_is_a_second_agent() -> None:
    run = seen_capture("opencode-resumed-served")
    requests = {run.plans[plan]["user_request"]: call for plan, call in run.opened().items()}
    assert {request[8:14] for request in requests} == {"task A", "task B"}
    assert all(
        json.loads(call["arguments"])["prompt"] == request for request, call in requests.items()
    )


@pytest.mark.parametrize("name", [*COMPLETE, *STOPPED, *CUT_SHORT])
def test_agent_that_writes_the_session_title_has_no_opening_call(name: str) -> None:
    run = seen_capture(name)
    titles = [(key, plan) for key, plan in run.plans.items() if plan["agent_name"] == "title"]
    [(plan_id, plan)] = titles
    assert plan["parent_plan_id"] == run.run.root_plan_id != plan_id
    assert plan["tool_call_id"] is None
    assert run.tokens(plan_id) == (21, 3)


def test_stopped_session_is_cancelled_at_every_level() -> None:
    run = seen_capture("opencode-abort-served")
    work = [plan for plan in run.plans.values() if plan["agent_name"] != "title"]
    rows = [*work, *run.calls.values()]
    assert {(row["status"], row["reason"]) for row in rows} == {(Status.CANCELLED, "interrupted")}
    assert len(work) == 2
    assert len(run.calls) == 3


def test_agent_whose_last_model_call_failed_has_failed() -> None:
    run = seen_capture("opencode-apifail-served")
    root = run.plans[run.run.root_plan_id]
    assert (root["status"], root["error_message"]) == (Status.FAILED, "The model is broken.")


def test_turns_of_one_process_are_hand_offs_of_its_root_agent() -> None:
    run = seen_capture(TURNS)
    root = run.plans[run.run.root_plan_id]
    assert (root["agent_name"], root["status"]) == ("opencode", Status.SUCCEEDED)
    turns = sorted(
        (plan for plan in run.plans.values() if plan["agent_name"] == "build"),
        key=lambda plan: plan["position"],
    )
    assert [turn["title"] for turn in turns] == [
        "[run 0] Say how many planets the list has.",
        "Now say it once more.",
        "[run 0] Read the missing list and the missing picture.",
    ]
    assert root["title"] == turns[0]["title"]
    assert all(turn["parent_plan_id"] == run.run.root_plan_id for turn in turns)
    assert run.opened() == {}


# --- Runs that lost their last spans -------------------------------------------------------------


def test_killed_run_has_the_received_records_with_status_running() -> None:
    (truth,) = truth_of("opencode-crash")["runs"]
    run = seen_capture("opencode-crash")
    root = run.plans[run.run.root_plan_id]
    assert (root["title"], root["status"]) == (truth["prompt"], Status.RUNNING)
    assert [call["status"] for call in run.calls.values()] == [Status.SUCCEEDED]
    rounds = sorted(
        (row for row in run.rounds.values() if run.plan_of(row) == run.run.root_plan_id),
        key=lambda row: row["position"],
    )
    assert [(row["input_tokens"], row["status"]) for row in rounds] == [
        (1101, Status.SUCCEEDED),
        (None, Status.RUNNING),
    ]


def test_sub_agent_of_a_missing_call_gets_an_inferred_call() -> None:
    (truth,) = truth_of("opencode-subagent")["runs"]
    run = seen_capture("opencode-subagent")
    [(plan_id, call)] = run.opened().items()
    plan = run.plans[plan_id]
    assert run.plans[run.run.root_plan_id]["title"] == truth["prompt"]
    assert (plan["agent_name"], plan["status"]) == ("general", Status.SUCCEEDED)
    assert (plan["inferred"], plan["inferred_from"]) == (True, IN_FLIGHT)
    assert (call["name"], call["status"]) == ("task", Status.RUNNING)
    [shell] = [call for call in run.calls.values() if call["name"] == "bash"]
    assert run.plan_of(shell) == plan_id
    assert json.loads(shell["arguments"]) == truth["tool_calls"][1]["arguments"]


# --- One signal alone ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPLETE)
def test_traces_alone_have_everything_but_the_names_of_main_agents(name: str) -> None:
    both, traces = seen_capture(name), seen(messages_of(name, "traces"))
    assert links(traces) == links(both)
    assert traces.run.whole_run["title"] == both.run.whole_run["title"]
    assert {k: (row["status"], row["result"]) for k, row in traces.calls.items()} == {
        k: (row["status"], row["result"]) for k, row in both.calls.items()
    }
    assert traces.tokens(traces.run.root_plan_id) == both.tokens(both.run.root_plan_id)
    assert traces.plans.keys() == both.plans.keys()
    assert {plan["agent_name"] for plan in traces.plans.values()} <= {
        "opencode",
        "general",
        "title",
    }


@pytest.mark.parametrize("name", ["opencode-nested-served", "opencode-twins-served"])
def test_log_records_alone_give_agents_rounds_and_opening_calls(name: str) -> None:
    both, logs = seen_capture(name), seen(messages_of(name, "logs"))
    assert logs.plans.keys() == both.plans.keys()
    assert logs.rounds.keys() == both.rounds.keys()
    assert {key: call["tool_call_id"] for key, call in logs.plans.items()} == {
        key: call["tool_call_id"] for key, call in both.plans.items()
    }
    root = logs.plans[logs.run.root_plan_id]
    assert (root["agent_name"], root["status"]) == ("build", Status.SUCCEEDED)


# --- Order, split and growth ---------------------------------------------------------------------


@pytest.mark.parametrize("name", QUICK_OR_THOROUGH)
def test_records_are_equal_if_an_export_is_reordered_split_or_repeated(name: str) -> None:
    messages = messages_of(name)
    expected = seen_capture(name).run
    singles = single(messages)
    traces, logs = single(messages_of(name, "traces")), single(messages_of(name, "logs"))
    shuffled = random.Random(0).sample(singles, len(singles))
    ways = [
        messages[::-1],
        singles[::-1],
        shuffled,
        [*traces, *logs],
        [*logs, *traces],
        [*messages, *singles],
    ]
    for way in ways:
        (found,) = projected(way)
        assert differences(found, expected) == []


@cache
def _run_of(name: str) -> tuple[list[bytes], Projected]:
    messages = single(messages_of(name))
    (expected,) = projected(messages)
    trace_id = expected.root_plan_id.bytes
    return [message for each, message in messages if each == trace_id], expected


@pytest.mark.thorough
@given(st.data())
def test_no_split_of_a_run_changes_a_record(data: st.DataObject) -> None:
    own, expected = _run_of(data.draw(st.sampled_from(ALL)))
    chance = random.Random(data.draw(st.integers()))
    assert differences(project_messages(split(own, chance)), expected) == []


@pytest.mark.parametrize("name", QUICK_OR_THOROUGH)
def test_links_of_every_prefix_of_a_run_remain_in_the_whole_run(name: str) -> None:
    messages = single(messages_of(name))
    final = seen_capture(name)
    _assert_beginnings_are_true(messages, final, parts=12)


@pytest.mark.parametrize("name", QUICK_OR_THOROUGH)
def test_plans_and_opening_calls_keep_their_ids_as_a_run_grows(name: str) -> None:
    messages = messages_of(name)
    final = seen_capture(name)
    for at in beginnings(len(messages), len(messages)):
        run = _seen_part(messages, final, at)
        for plan_id, plan in run.plans.items() if run is not None else ():
            assert plan["tool_call_id"] in (None, final.plans[plan_id]["tool_call_id"])


@pytest.mark.parametrize("name", QUICK_OR_THOROUGH)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 5))]
)
def test_links_found_in_a_part_of_the_messages_are_true_for_the_whole_run(
    name: str, seed: int
) -> None:
    messages = single(messages_of(name))
    final = seen_capture(name)
    random.Random(seed).shuffle(messages)
    _assert_beginnings_are_true(messages, final, parts=8)


def _assert_beginnings_are_true(messages: list[Message], final: Seen, parts: int) -> None:
    expected = links(final)
    parents = {(child, parent) for child, parent, _, _ in expected}
    for at in range(1, len(messages), len(messages) // parts):
        run = _seen_part(messages, final, at)
        if run is None:
            continue
        for sessions in run.sessions.values():
            assert len(sessions) == 1
        for link in links(run):
            assert link[:2] in parents
            assert link in expected or link[3] is None
        for plan_id, call in run.opened().items():
            assert call["provider_call_id"] is not None or run.plans[plan_id]["inferred"]


def _seen_part(messages: list[Message], final: Seen, at: int) -> Seen | None:
    trace_id = final.run.root_plan_id.bytes
    part = [each for each in messages[:at] if each[0] == trace_id]
    if not part:
        return None
    return Seen(project_messages([message for _, message in part]), sessions_of(part))


# --- Anything at all -----------------------------------------------------------------------------

NAMES = (
    *("SessionPrompt.run", "SessionPrompt.ensureTitle", "SessionTools.resolve"),
    *("SessionProcessor.process", "LLM.run", "Tool.execute", "TaskTool.execute"),
    *("ai.streamText", "ai.streamText.doStream", "ai.toolCall"),
)
KEYS = (
    *("session.id", "tool.name", "tool.call_id", "message.id", "status.interrupted"),
    *("ai.operationId", "ai.toolCall.name", "ai.toolCall.id", "ai.toolCall.args"),
    *("ai.toolCall.result", "ai.prompt.messages", "ai.request.headers.x-parent-session-id"),
    *("ai.request.headers.x-session-affinity", "ai.usage.inputTokens"),
)
VALUES = st.sampled_from(
    [
        *("s1", "s2", "s3", "c1", "task", "bash", "", 7, True, ["s1"], None),
        '{"metadata": {"sessionId": "s2", "parentSessionId": "s1", "exit": 1}, "output": 3}',
        '{"metadata": [], "output": "done"}',
        '[{"role": "user", "content": [{"type": "text", "text": "\\"a b\\""}, 5]}, 7]',
        '[{"role": "system", "content": "You are a title generator"}]',
        '{"messages": {"role": "user"}}',
        "[" * 2000,
    ]
)
BODIES = st.lists(
    st.sampled_from(
        [
            *("loop", "exiting loop", "stream", "process", "created", "cancel", "stream error"),
            '{"session.id":"s1","step":0,"agent":"build","mode":"primary","messageID":"c1"}',
            '{"session.id":"s2","agent":"title","mode":"subagent","error":{"error":x}}',
            '{"id":"s2","parentID":"s1","agent":"general"}',
            '{"id":"s1","parentID":"s2","agent":undefined}',
            '{"session.id":7,"id":"s3","parentID":undefined',
        ]
    ),
    max_size=3,
)


@st.composite
def spans(draw: st.DrawFn) -> dict[str, Any]:
    start, length = draw(st.integers(0, 5)), draw(st.sampled_from([0, 1, 3, None]))
    number = draw(st.integers(1, 12))
    return make_span(
        number,
        draw(st.sampled_from(NAMES)),
        draw(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8)),
        parent=draw(st.none() | st.integers(1, 14)),
        at=(start, None if length is None else start + length),
        scope=SCOPE,
        failed=draw(st.sampled_from([None, None, "broken"])),
    )


@st.composite
def log_messages(draw: st.DrawFn) -> bytes:
    values = [{"stringValue": each} for each in draw(BODIES)]
    record = {
        "traceId": TRACE_ID,
        "spanId": f"{draw(st.integers(1, 14)):016x}",
        "timeUnixNano": str(draw(st.integers(1, 6)) * 10**9),
        "body": draw(st.sampled_from([{"arrayValue": {"values": values}}, {"stringValue": "x"}])),
    }
    scope = {"scope": {"name": SCOPE}, "logRecords": [record]}
    [decoded] = decode_logs_json(
        json.dumps({"resourceLogs": [{"scopeLogs": [scope]}]}).encode()
    ).traces
    return decoded.message


@given(st.lists(spans(), max_size=14), st.lists(log_messages(), max_size=8), st.integers())
def test_any_spans_and_log_records_are_projected(
    made_spans: list[dict[str, Any]], logs: list[bytes], seed: int
) -> None:
    sent = [span for each in made_spans for span in decode_json(body_of(each)).traces]
    messages = [*(trace.message for trace in sent), *logs]
    if not messages:
        return
    expected = project_messages(messages)
    assert differences(project_messages(messages[::-1]), expected) == []
    assert differences(project_messages(split(messages, random.Random(seed))), expected) == []


def test_many_calls_with_one_id_are_projected_in_linear_time() -> None:
    size = 1_000  # quadratic work would take minutes
    task = {"tool.name": "task", "session.id": "s", "tool.call_id": "same"}
    result = json.dumps({"metadata": {"sessionId": "t"}, "output": "x"})
    attributes = {
        **{"ai.operationId": "ai.toolCall", "ai.toolCall.name": "task", "session.id": "s"},
        **{"ai.toolCall.id": "same", "ai.toolCall.result": result},
    }
    work = {"ai.operationId": "ai.streamText", "session.id": "t"}
    parts = [
        *(make_span(each, "Tool.execute", task, scope=SCOPE) for each in range(size)),
        *(make_span(size + each, "ai.toolCall", attributes, scope=SCOPE) for each in range(size)),
        *(make_span(2 * size + n, "SessionPrompt.run", parent=n, scope=SCOPE) for n in range(size)),
        *(make_span(3 * size + n, "ai.streamText", work, parent=2 * size + n) for n in range(size)),
    ]
    for part in parts:
        part["scope"] = SCOPE
    run = project_messages([trace.message for trace in decode_json(body_of(*parts)).traces])
    assert len(run.records[Kind.TOOL_CALL]) <= 2 * size


def test_provider_that_the_user_named_has_the_prices_of_the_model() -> None:
    (run,) = projected(messages_of("opencode-two-tools-served"))

    rounds = run.records[Kind.THINK_ACT].values()
    assert {(each["provider"], bool(each["cost_usd"])) for each in rounds} == {("local.chat", True)}


def test_call_of_a_model_call_that_did_not_arrive_belongs_to_no_other_one() -> None:
    # The spans of the model call with 1302 input tokens, from `LLM.run` down, are lost.
    lost = {"7b0207c473764a97", "499d84c94b117a5f", "a7071ef80e4fb65b"}
    messages = [
        (trace_id, message)
        for trace_id, message in single(messages_of("opencode-two-tools-served"))
        if not any(span.span_id.hex() in lost for span in sent_spans(message))
        and not any(
            record.span_id is not None and record.span_id.hex() in lost
            for record in logs_in(StoredMessage.FromString(message))
        )
    ]

    (run,) = projected(messages)

    rounds = run.records[Kind.THINK_ACT]
    assert [
        (call["provider_call_id"], call["inferred"], rounds.get(call["think_act_id"]) is not None)
        for call in sorted(
            run.records[Kind.TOOL_CALL].values(), key=lambda call: call["started_at"]
        )
    ] == [("call_m0", False, True), ("call_m1", False, False)]


def test_request_is_read_from_a_later_model_call_if_the_first_did_not_arrive() -> None:
    name = "opencode-two-tools-served"
    messages = single(messages_of(name))
    # The model calls of the title and of the first step.
    calls = [
        span
        for _, message in messages
        for span in sent_spans(message)
        if span.name.startswith("ai.streamText")
    ]
    lost = {span.span_id for span in sorted(calls, key=lambda span: span.start)[:4]}
    left = [
        each for each in messages if not any(span.span_id in lost for span in sent_spans(each[1]))
    ]

    (run,) = projected(left)

    assert run.whole_run["title"] == truth_of(name)["runs"][0]["prompt"]
