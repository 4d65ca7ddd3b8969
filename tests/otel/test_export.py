"""Runs of events exported as spans: their content, and the records after a re-import."""

from __future__ import annotations

import json
import random
from functools import partial
from uuid import UUID

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tests.contract.moments import Moments
from tests.otel.decoded import spans_in
from tests.otel.made_traces import made, spans_from
from tests.otel.projections import Projected, changed, drop_attributes, project
from tests.sample_runs import SampleRun, sample_run
from tracer.otel.otlp.decode_protobuf import decode_protobuf
from tracer.otel.otlp.encode import encode_protobuf
from tracer.otel.otlp.span_fields import RECORD, RUN
from tracer.otel.otlp.spans import STATUS_ERROR, Span
from tracer.records.ids import new_id, sequential_ids, span_id
from tracer.records.record_classes import Kind
from tracer.records.status import Status
from tracer.storage.memory.store import MemoryStore
from tracer.store import WholeRun
from tracer.transfer.exporting import exported_spans


@pytest.fixture
def run() -> SampleRun:
    return sample_run(ids=sequential_ids())


async def whole(run: SampleRun | Moments, *events: object) -> WholeRun:
    store = MemoryStore()
    told = run.events if isinstance(run, SampleRun) else events
    answer = await store.write(list(told))  # type: ignore[arg-type]
    assert answer.refused == []
    return await store.read_whole_run(run.root)


async def spans_of_run(run: SampleRun) -> list[Span]:
    return list(exported_spans(await whole(run)))


def stripped(spans: list[Span]) -> list[Span]:
    """Return the spans as an emitter that knows nothing of records would send them."""
    without_records = partial(drop_attributes, is_dropped=lambda name: name.startswith("tracer."))
    return [changed(span, without_records) for span in spans]


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


async def test_every_record_is_exported_as_a_span(run: SampleRun) -> None:
    spans = await spans_of_run(run)

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


async def test_model_span_has_messages_and_chosen_calls(
    run: SampleRun,
) -> None:
    [chat] = [span for span in await spans_of_run(run) if span.name.startswith("chat")]

    [given] = json.loads(chat.attributes["gen_ai.input.messages"])
    assert given == {"role": "user", "parts": [{"type": "text", "content": "Review"}]}
    [said] = json.loads(chat.attributes["gen_ai.output.messages"])
    assert [part["type"] for part in said["parts"]] == ["text", *["tool_call"] * 3]
    assert said["finish_reason"] == "tool_call"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 100


async def delegation() -> list[Span]:
    """Return the spans of a run whose agent's call opens a sub-agent that calls a tool itself."""
    run, sub = Moments(), Moments()
    plan, round_ = new_id(), new_id()
    inner = {"plan_id": plan, "step_id": sub.step}
    told = await whole(
        run,
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
    )
    return list(exported_spans(told))


async def test_exported_spans_without_embedded_records_give_the_same_tree() -> None:
    spans = await delegation()

    assert calls_of(project(spans)) == {
        ("ask", '{"q":"Why?"}', "running", 1),
        ("measure", "{}", "running", 0),
    }
    assert calls_of(project(stripped(spans))) == calls_of(project(spans))


async def test_open_span_has_no_end_and_failed_span_has_its_exception(run: SampleRun) -> None:
    running = sample_run(finished=False)
    ends = {span.name: span.end for span in await spans_of_run(running)}
    assert ends["invoke_workflow Weekly review"] == 0
    [failed] = [
        span for span in await spans_of_run(run) if span.span_id.hex() == span_id(run.failed_call)
    ]
    assert (failed.status_code, failed.status_message) == (STATUS_ERROR, "the cuff is loose")
    [exception] = failed.events
    assert exception.attributes["exception.type"] == failed.attributes["error.type"]


async def test_times_outside_the_range_of_otlp_are_restored() -> None:
    run = Moments()
    before = await whole(
        run,
        run.plan_started().model_copy(update={"at": run.plan_started().at.replace(year=1950)}),
        run.plan_finished().model_copy(update={"at": run.plan_started().at.replace(year=2500)}),
    )
    projected = project(exported_spans(before))
    plan = projected.records[Kind.PLAN][run.root]
    assert (plan["started_at"].year, plan["finished_at"].year) == (1950, 2500)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))]
)
async def test_records_are_independent_of_span_order_and_repetition(
    run: SampleRun, seed: int
) -> None:
    spans = await spans_of_run(run)
    shuffled = random.Random(seed).choices(spans, k=5) + random.Random(seed).sample(
        spans, len(spans)
    )
    decoded = spans_in(decode_protobuf(encode_protobuf(shuffled)))

    assert project(decoded) == project(spans)


async def test_spans_without_embedded_records_in_an_exported_trace_make_no_records(
    run: SampleRun,
) -> None:
    spans = await spans_of_run(run)
    other = made(1, "execute_tool x", {"gen_ai.operation.name": "execute_tool"}, parent=2)
    others = spans_from({**other, "traceId": run.root.hex})

    projected = project([*spans, *others])

    assert projected.records == project(spans).records
    assert projected.record_of[others[0].span_id] == (Kind.PLAN, run.root)


def _carrying(span: Span, record: object) -> Span:
    def carry(wire: WireSpan) -> None:
        drop_attributes(wire, RECORD.__eq__)
        value = wire.attributes.add(key=RECORD).value
        if isinstance(record, int):
            value.int_value = record
        else:
            value.string_value = str(record)

    return changed(span, carry)


async def test_invalid_embedded_records_are_ignored(run: SampleRun) -> None:
    spans = await spans_of_run(run)
    line = json.loads(spans[0].attributes[RECORD])
    for said in (
        "",
        "[]",
        spans[0].attributes[RECORD][:-9],
        spans[0].attributes[RUN],
        7,
        json.dumps({**line, "rootPlanId": str(new_id())}),
        json.dumps({**line, "position": -1}),
        json.dumps({**line, "startedAt": "yesterday"}),
    ):
        projected = project([_carrying(spans[0], said), *spans[1:]])

        root = projected.records[Kind.PLAN][run.root]
        assert root["status"] is Status.UNKNOWN, said
        assert len(projected.records[Kind.TOOL_CALL]) == 3


async def test_spans_with_truncated_embedded_records_are_read_by_their_attributes() -> None:
    spans = await delegation()
    cut = [_carrying(span, str(span.attributes[RECORD])[:100]) for span in spans]

    assert calls_of(project(cut)) == calls_of(project(spans))


async def test_records_with_missing_parents_are_below_placeholders(
    run: SampleRun,
) -> None:
    spans = await spans_of_run(run)
    [call] = [span for span in spans if span.span_id.hex() == span_id(run.failed_call)]

    projected = project([call])

    found: dict[Kind, set[UUID]] = {kind: set(part) for kind, part in projected.records.items()}
    assert found == {
        Kind.PLAN: {run.root},
        Kind.STEP: {run.step},
        Kind.THINK_ACT: {run.think_act},
        Kind.TOOL_CALL: {run.failed_call},
    }
    assert projected.records[Kind.STEP][run.step]["status"] is Status.UNKNOWN
    assert projected.records[Kind.TOOL_CALL][run.failed_call]["status"] is Status.FAILED
