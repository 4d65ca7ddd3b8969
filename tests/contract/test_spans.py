"""Spans are stored as received; the records of their run are the projection of all of them."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal
from uuid import UUID

import anyio
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from tests.contract.moments import Moments
from tests.contract.stores import (
    NewStore,
    Store,
    all_records,
    clock,
    tree,
)
from tests.otel.captured import NAMES, bodies, moved, spans_of
from tests.otel.decoded import redacted_spans, spans_in
from tests.otel.made_traces import chat, make_span, spans_from
from tests.otel.sent import traces_of
from tests.profiles import quick_among
from tests.recordings import rows_of_spans
from tests.stored import read_spans
from tests.trees import plain_rows, read_tree
from tracer.errors import RecordNotFound
from tracer.lineage import Payloads
from tracer.lineage.tree import UNSTORED
from tracer.otel.otlp import decode_protobuf
from tracer.records.spans import Span
from tracer.redaction import Redaction
from tracer.storage.postgres import ProjectPool, WriterOptions, open_pool, postgres_writer
from tracer.store import RunFilter

ONE_RUN = "pydantic-ai-default-single"


def _requests(name: str) -> list[list[Span]]:
    return [spans_in(decode_protobuf(body)) for body in bodies(name)]


def _run_of(span: Span) -> UUID:
    return UUID(bytes=span.trace_id)


@pytest.mark.parametrize("name", quick_among(NAMES, NAMES[::6]))
async def test_requests_of_every_capture_are_projected_as_all_spans_of_a_trace_at_once(
    new_postgres_store: NewStore, name: str
) -> None:
    store = new_postgres_store()
    await store.record_spans(*_requests(name))
    by_trace: dict[UUID, list[Span]] = {}
    for span in redacted_spans(Redaction(), spans_of(name)):
        by_trace.setdefault(_run_of(span), []).append(span)
    for run_id, spans in by_trace.items():
        found = await read_tree(store.reader, run_id, Payloads.FULL)
        expected = plain_rows(rows_of_spans(spans))
        assert replace(found, revision=UNSTORED) == expected
        assert found.plans


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("logfire-pending-single", 0),
        *(
            pytest.param(name, seed, marks=pytest.mark.thorough)
            for name, seeds in (
                ("logfire-pending-single", (1, 2)),
                (ONE_RUN, (0, 1, 2)),
                ("agno-openinference-single", (0, 1, 2)),
            )
            for seed in seeds
        ),
    ],
)
async def test_records_are_equal_if_spans_are_reordered_split_or_repeated(
    new_store: NewStore, name: str, seed: int
) -> None:
    once, shuffled = new_store(), new_store()
    spans = spans_of(name)
    await once.record_spans(spans)
    randomly = random.Random(seed)
    await shuffled.record_spans(randomly.sample(spans, 5))
    randomly.shuffle(spans)
    for start in range(0, len(spans), 4):
        await shuffled.record_spans(spans[start : start + 4])

    assert await all_records(shuffled) == await all_records(once)


async def test_concurrent_writers_of_spans_give_the_same_records(new_store: NewStore) -> None:
    once, together = new_store(), new_store()
    spans = spans_of("openai-agents-openinference-concurrent")
    await once.record_spans(spans)
    async with anyio.create_task_group() as tasks:
        for seed in range(4):
            mixed = random.Random(seed).sample(spans, len(spans))
            for start in range(0, len(mixed), 40):
                tasks.start_soon(together.record_spans, mixed[start : start + 40])
    await together.project()  # one projection may have skipped a run that another had claimed

    assert await all_records(together) == await all_records(once)


async def test_tree_of_a_trace_has_each_agent_below_the_call_that_opened_it(store: Store) -> None:
    spans = spans_of(ONE_RUN)
    await store.record_spans(spans)

    root = await tree(store, _run_of(spans[0]))

    rounds = root["agentExecutions"][0]["thinkActs"]
    calls = [call for each in rounds for call in each["toolCalls"]]
    assert [call["name"] for call in calls] == [
        "weather",
        "ask_researcher",
        "ask_researcher",
        "weather",
    ]
    opened = [plan for call in calls for plan in call["subPlans"]]
    assert [plan["parentActToolCall"]["name"] for plan in opened] == ["ask_researcher"] * 2
    assert root["cumulative"]["inputTokens"] == 5742
    assert root["unplaced"] == []
    run = await store.reader.read_run(_run_of(spans[0]))
    assert (run.input_tokens, run.output_tokens, run.tool_calls) == (5742, 366, 8)


async def test_inferred_links_between_records_contain_their_evidence(store: Store) -> None:
    spans = spans_of("openai-agents-traceloop-single")
    await store.record_spans(spans)

    rows = await read_tree(store.reader, _run_of(spans[0]), Payloads.FULL)

    inferred = [row for row in (*rows.plans, *rows.tool_calls) if row["inferred"]]
    assert inferred
    assert all(row["inferredFrom"] for row in inferred)
    kept = [row for row in (*rows.plans, *rows.tool_calls) if not row["inferred"]]
    assert all(row["inferredFrom"] is None for row in kept)


async def test_writing_the_same_trace_twice_changes_no_record(store: Store) -> None:
    spans = spans_of(ONE_RUN)
    await store.record_spans(spans)
    before = await store.reader.read_run(_run_of(spans[0]))
    rows = await read_tree(store.reader, _run_of(spans[0]), Payloads.FULL)
    await store.record_spans(spans)

    after = await store.reader.read_run(_run_of(spans[0]))

    assert after.model_dump(exclude={"revision"}) == before.model_dump(exclude={"revision"})
    again = await read_tree(store.reader, _run_of(spans[0]), Payloads.FULL)
    assert (again.plans, again.tool_calls) == (rows.plans, rows.tool_calls)


async def test_only_records_changed_by_new_spans_get_the_new_revision(store: Store) -> None:
    spans = sorted(spans_of(ONE_RUN), key=lambda span: span.start)
    run_id = _run_of(spans[0])
    await store.record_spans(spans[:-1])
    before = await store.reader.read_run(run_id)
    plan = (await store.reader.read_plan(run_id)).plan

    await store.record_spans(spans[-1:])

    assert (await store.reader.read_run(run_id)).revision == before.revision + 1
    assert (await store.reader.read_plan(run_id)).plan.revision == plan.revision


async def test_ended_version_of_a_span_replaces_the_open_version(new_store: NewStore) -> None:
    spans = spans_of(ONE_RUN)
    root = next(span for span in spans if span.parent_span_id is None)
    opened = replace(root, end=0, status_code=0, body=_without_end(root))
    one, other = new_store(), new_store()
    await one.record_spans([opened], [root])
    await other.record_spans([root], [opened])

    assert await all_records(one) == await all_records(other)
    assert (await one.reader.read_run(_run_of(root))).status == "succeeded"


def _without_end(span: Span) -> bytes:
    """Return the span's body as it was before it ended."""
    message = ResourceSpans.FromString(span.body)
    message.scope_spans[0].spans[0].end_time_unix_nano = 0
    return bytes(message.SerializeToString(deterministic=True))


async def test_spans_of_a_run_are_read_by_their_ids(store: Store) -> None:
    spans = spans_of(ONE_RUN)
    await store.record_spans(spans)
    run = _run_of(spans[0])
    whole = await read_spans(store.reader, run)

    some = {span.span_id for span in whole[1:3]}

    [part] = await store.reader.list_span_parts(run)
    for wanted in (some | {b"no such "}, ()):
        contents = await store.reader.read_span_part(part, wanted)
        assert contents is not None
        assert contents.spans == [span for span in whole if span.span_id in wanted]


async def test_events_for_a_run_of_spans_are_rejected(store: Store) -> None:
    late, other = Moments(), Moments()
    await store.record_spans([moved(span, late.root.bytes) for span in spans_of(ONE_RUN)])
    before = await all_records(store)

    answer = await store.writer.write([late.plan_started(), other.plan_started()])

    assert [(each.index, each.code) for each in answer.refused] == [(0, "run_of_spans")]
    assert answer.stored == 1
    await store.writer.delete_run(other.root)
    assert await all_records(store) == before


async def test_spans_for_a_run_of_events_change_no_records(store: Store) -> None:
    native = Moments()
    await store.record(native.plan_started())
    before = await all_records(store)

    await store.record_spans([moved(span, native.root.bytes) for span in spans_of(ONE_RUN)])

    assert await all_records(store) == before
    await store.record(native.call_started())


async def test_spans_of_a_deleted_run_are_rejected_and_other_spans_stored(
    store: Store,
) -> None:
    deleted, other = spans_of(ONE_RUN), spans_of("agno-openinference-single")
    await store.record_spans(deleted)
    await store.writer.delete_run(_run_of(deleted[0]))

    answer = await store.writer.write_spans(
        [*traces_of(deleted[:1]), *traces_of(other), *traces_of(deleted[1:2])]
    )

    assert [(each.index, each.code) for each in answer.refused] == [
        (0, "run_deleted"),
        (len(other) + 1, "run_deleted"),
    ]
    assert answer.stored == len(other)
    with pytest.raises(RecordNotFound):
        await store.reader.read_run(_run_of(deleted[0]))
    assert (await store.reader.read_run(_run_of(other[0]))).tool_calls == 8


async def test_trace_without_agent_work_is_listed_only_with_other_traces(store: Store) -> None:
    span = replace(spans_of(ONE_RUN)[0], attributes={}, name="GET /", parent_span_id=None)
    span = replace(span, body=_plain_body(span))
    await store.record_spans([span])

    assert (await store.reader.read_run(_run_of(span))).title == "GET /"
    assert (await store.reader.list_runs(RunFilter(), 10, None)).items == []
    listed = await store.reader.list_runs(RunFilter(other_traces=True), 10, None)
    assert [run.root_plan_id for run in listed.items] == [_run_of(span)]


def _plain_body(span: Span) -> bytes:
    message = ResourceSpans.FromString(span.body)
    wire = message.scope_spans[0].spans[0]
    wire.ClearField("attributes")
    wire.ClearField("events")
    wire.ClearField("parent_span_id")
    message.scope_spans[0].ClearField("scope")
    wire.name = span.name
    return bytes(message.SerializeToString(deterministic=True))


async def test_writing_an_empty_list_of_spans_is_accepted(store: Store) -> None:
    await store.record_spans([])


async def test_span_writers_in_separate_pools_do_not_deadlock(database_url: str) -> None:
    spans = spans_of("langgraph-openinference-concurrent")
    async with open_pool(database_url) as one, open_pool(database_url) as other:
        writers = [
            postgres_writer(ProjectPool(pool, 7_001), WriterOptions(clock=clock()))
            for pool in (one, other)
        ]
        async with anyio.create_task_group() as tasks:
            for index, writer in enumerate(writers):
                for start in range(0, len(spans), 30):
                    batch = spans[start : start + 30]
                    tasks.start_soon(writer.write_spans, traces_of(batch if index else batch[::-1]))
        assert (await writers[0].write_spans(traces_of(spans))).refused == []


async def test_cost_is_rounded_to_12_decimal_places_and_0_if_out_of_range(
    new_store: NewStore,
) -> None:
    failures = []
    for sent, expected in (
        ("1e-20000", Decimal(0)),
        (0.1234567890123456, Decimal("0.123456789012")),
        ("999999999.5", Decimal("999999999.5")),
        ("1000000000", Decimal(0)),
        ("nan", Decimal(0)),
        ("1" * 5000, Decimal(0)),
    ):
        store = new_store()
        cost = {"gen_ai.operation.name": "chat", "gen_ai.usage.cost": sent}
        spans = spans_from(make_span(1, "chat", cost))
        await store.record_spans(spans)
        stored = (await store.reader.read_run(_run_of(spans[0]))).cost_usd
        if stored != expected:
            failures.append(f"cost {str(sent)[:20]}: expected {expected}, stored {stored}")
    assert failures == []


async def test_token_counts_whose_sum_overflows_are_stored_as_zero(store: Store) -> None:
    spans = spans_from(*(chat(each, tokens=2**63 - 1) for each in range(1, 50)))
    await store.record_spans(spans)
    run = await store.reader.read_run(_run_of(spans[0]))
    assert run.input_tokens == 0
