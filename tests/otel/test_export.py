"""Runs of events exported as spans: their content, and the records that they become elsewhere."""

from __future__ import annotations

import json
import random

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tests.contract.moments import Moments
from tests.otel.decoded import spans_in
from tests.otel.projections import Projected, project
from tests.recordings import spans_of_events, whole_run
from tests.sample_runs import SampleRun, sample_run
from tracer.otel.export import spans_of_records
from tracer.otel.otlp import decode_protobuf
from tracer.otel.otlp.spans import encode_protobuf
from tracer.records import Kind, new_id, sequential_ids, span_id
from tracer.records.spans import STATUS_ERROR, Span


@pytest.fixture
def run() -> SampleRun:
    return sample_run(ids=sequential_ids())


def spans_of_run(run: SampleRun) -> list[Span]:
    return spans_of_events(run.events)


def calls_of(projected: Projected) -> set[tuple[str, str, str, int]]:
    """Return each call's name, arguments and status, and how many sub-plans it opened."""
    plans = projected.records[Kind.PLAN].values()
    return {
        (
            call["name"],
            call["arguments"],
            call["status"].value,
            sum(plan.get("tool_call_id") == call_id for plan in plans),
        )
        for call_id, call in projected.records[Kind.TOOL_CALL].items()
    }


def test_every_record_is_exported_as_a_span(run: SampleRun) -> None:
    spans = spans_of_run(run)

    parsed = TracesData.FromString(encode_protobuf(spans))
    assert len(parsed.resource_spans) == len(spans) > 5
    assert {span.attributes["gen_ai.operation.name"] for span in spans} == {
        "invoke_workflow",
        "invoke_agent",
        "chat",
        "execute_tool",
    }
    assert {span.trace_id for span in spans} == {run.root.bytes}
    by_id = {span.span_id: span for span in spans}
    assert [span.name for span in spans if span.parent_span_id is None] == [
        "invoke_workflow Weekly review"
    ]
    for call_id in (run.failed_call, *run.opening_calls):
        call = by_id[bytes.fromhex(span_id(call_id))]
        assert call.parent_span_id is not None
        assert by_id[call.parent_span_id].name == "invoke_agent nurse"
    opened = [span for span in spans if span.name.startswith("invoke_workflow Check")]
    assert {span.parent_span_id for span in opened} == {
        bytes.fromhex(span_id(call_id)) for call_id in run.opening_calls
    }


def test_model_span_has_messages_and_chosen_calls(
    run: SampleRun,
) -> None:
    [chat] = [span for span in spans_of_run(run) if span.name.startswith("chat")]

    [given] = json.loads(chat.attributes["gen_ai.input.messages"])
    assert given == {"role": "user", "parts": [{"type": "text", "content": "Review"}]}
    [said] = json.loads(chat.attributes["gen_ai.output.messages"])
    assert [part["type"] for part in said["parts"]] == ["text", *["tool_call"] * 3]
    assert said["finish_reason"] == "tool_call"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 100


def delegation() -> list[Span]:
    """Return the spans of a run whose agent's call opens a sub-agent that calls a tool itself."""
    run, sub = Moments(), Moments()
    plan, round_ = new_id(), new_id()
    inner = {"plan_id": plan, "step_id": sub.step}
    whole = whole_run(
        [
            run.plan_started(title="Review", agent_name="planner"),
            run.step_started(agent_name="planner"),
            run.thought_started(),
            run.call_started(name="ask", arguments='{"q":"Why?"}', think_act_id=run.think_act),
            run.sub_plan_started(plan, run.call, title="Why?"),
            run.step_started(agent_name="helper").model_copy(update=inner),
            run.thought_started(think_act_id=round_).model_copy(update=inner),
            run.call_started(tool_call_id=sub.call, arguments="{}", think_act_id=round_).model_copy(
                update=inner
            ),
        ]
    )
    return list(spans_of_records(whole.run, whole.records))


def test_exported_spans_give_the_same_tree() -> None:
    spans = delegation()

    assert calls_of(project(spans)) == {
        ("ask", '{"q":"Why?"}', "running", 1),
        ("measure", "{}", "running", 0),
    }


def test_open_span_has_no_end_and_failed_span_has_its_exception(run: SampleRun) -> None:
    running = sample_run(finished=False)
    ends = {span.name: span.end for span in spans_of_run(running)}
    assert ends["invoke_workflow Weekly review"] == 0
    [failed] = [
        span for span in spans_of_run(run) if span.span_id.hex() == span_id(run.failed_call)
    ]
    assert (failed.status_code, failed.status_message) == (STATUS_ERROR, "the cuff is loose")
    [exception] = failed.events
    assert exception.attributes["exception.type"] == failed.attributes["error.type"]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))]
)
def test_records_are_independent_of_span_order_and_repetition(run: SampleRun, seed: int) -> None:
    spans = spans_of_run(run)
    shuffled = random.Random(seed).choices(spans, k=5) + random.Random(seed).sample(
        spans, len(spans)
    )
    decoded = spans_in(decode_protobuf(encode_protobuf(shuffled)))

    assert project(decoded) == project(spans)
