"""Log records are stored with the spans of their trace."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.contract.stores import NewStore, Store, all_records
from tests.otel.made_logs import logs_as_traces, made_log
from tests.otel.made_traces import TRACE_ID, agent, spans_from
from tests.otel.sent import traces_of
from tests.stored import read_logs, read_spans
from tracer.errors import RecordNotFound
from tracer.otel.otlp import redacted_traces
from tracer.otel.otlp.spans import logs_of, root_plan_id, session_run_id
from tracer.records.masks import PayloadPolicy
from tracer.records.spans import TraceSpans
from tracer.redaction import Redaction
from tracer.store import RunFilter, WriteAnswer

RUN = root_plan_id(bytes.fromhex(TRACE_ID))
OTHER = "1af7651916cd43dd8448eb211c80319c"


async def test_repeated_log_records_are_returned_once_in_order_of_time(store: Store) -> None:
    spans = traces_of(spans_from(agent(1, "planner")))
    logs = logs_as_traces(made_log("later", 5, span_id=1), made_log("first", 2))

    assert await store.writer.write_spans([*logs, *spans]) == WriteAnswer(3)
    assert await store.writer.write_spans(logs) == WriteAnswer(2)
    again = logs_as_traces(made_log("first", 2))
    assert await store.writer.write_spans(again) == WriteAnswer(1)

    found = await read_logs(store.reader, RUN)
    assert [(record.name, record.span_id) for record in found] == [
        ("first", None),
        ("later", (1).to_bytes(8)),
    ]
    assert [span.name for span in await read_spans(store.reader, RUN)] == ["invoke_agent planner"]
    assert await read_logs(store.reader, RUN, with_sessions=False) == found


async def test_trace_with_only_log_records_is_listed_only_with_other_traces(store: Store) -> None:
    await store.writer.write_spans(logs_as_traces(made_log("started", 1)))
    await store.project()

    assert (await store.reader.list_runs(RunFilter(), 10, None)).items == []
    [run] = (await store.reader.list_runs(RunFilter(other_traces=True), 10, None)).items
    assert run.root_plan_id == RUN


async def test_log_records_do_not_change_the_records_of_spans(new_store: NewStore) -> None:
    without, with_logs = new_store(), new_store()
    spans = traces_of(spans_from(agent(1, "planner")))
    await without.writer.write_spans(spans)
    await with_logs.writer.write_spans(logs_as_traces(made_log("noise", 1, span_id=1)))
    await with_logs.writer.write_spans(spans)

    assert await all_records(with_logs) == await all_records(without)


async def test_log_records_of_a_deleted_run_are_rejected(store: Store) -> None:
    await store.writer.write_spans(logs_as_traces(made_log("started", 1)))
    await store.writer.delete_run(RUN)

    sent = logs_as_traces(made_log("late", 2), made_log("other", 2, trace_id=OTHER))
    answer = await store.writer.write_spans(sent)

    assert [(each.index, each.code) for each in answer.refused] == [(0, "run_deleted")]
    with pytest.raises(RecordNotFound):
        await read_logs(store.reader, RUN)


async def test_rejections_have_the_indices_of_spans_and_log_records(store: Store) -> None:
    await store.writer.write_spans(logs_as_traces(made_log("started", 1)))
    await store.writer.delete_run(RUN)
    [spans] = traces_of(spans_from(agent(1, "planner")))
    [logs] = logs_as_traces(made_log("asked", 1))
    mixed = TraceSpans(spans.trace_id, logs.message + spans.message, 2)
    others = logs_as_traces(made_log("other", 2, trace_id=OTHER))

    answer = await store.writer.write_spans([*others, mixed, *others])

    assert [each.index for each in answer.refused] == [1, 2]


async def test_secrets_in_log_records_are_masked(store: Store) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 20
    record = made_log("asked", 1, body=f"use {secret}", prompt=f"key {secret}", password="hunter22")
    await store.writer.write_spans(logs_as_traces(record))

    [found] = await read_logs(store.reader, RUN)
    assert secret not in repr(found)
    assert "hunter22" not in repr(found)
    assert found.trace_id == bytes.fromhex(TRACE_ID)


def test_payloads_of_log_records_are_removed_under_the_drop_policy() -> None:
    sent = logs_as_traces(made_log("asked", 1, body="How are you?", prompt="Hi", tool_name="Bash"))
    [kept] = redacted_traces(sent, Redaction(), PayloadPolicy.DROP)
    [found] = logs_of([kept.message])
    assert "How" not in repr(found)
    assert found.attributes["prompt"] != "Hi"
    assert (found.name, found.attributes["tool_name"]) == ("asked", "Bash")


# --- Log records of sessions, which name no trace ------------------------------------------------

NO_TRACE = "00" * 16
CODEX = "codex_otel.log_only"
SESSION_RUN = root_plan_id(session_run_id("c-1"))


def of_session(name: str, at: int) -> list[TraceSpans]:
    """Return a log record of the session c-1 that names no trace."""
    record = made_log(name, at, trace_id=NO_TRACE, conversation__id="c-1")
    return logs_as_traces(record, scope=CODEX)


def of_trace(name: str, at: int, trace_id: str = TRACE_ID) -> list[TraceSpans]:
    """Return a log record of a trace that names the session c-1."""
    record = made_log(name, at, trace_id=trace_id, conversation__id="c-1")
    return logs_as_traces(record, scope=CODEX)


async def settle(store: Store) -> None:
    """Project until nothing is pending."""
    while await store.project():
        pass


@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_log_records_of_a_session_are_read_whenever_they_arrive(
    store: Store, order: tuple[int, ...]
) -> None:
    writes = [of_session("sse", 2), of_trace("asked", 1), of_trace("again", 3, OTHER)]
    for number in order:
        await store.writer.write_spans(writes[number])
        await settle(store)
    await store.writer.write_spans(of_session("late", 4))
    await settle(store)

    names = [record.name for record in await read_logs(store.reader, RUN)]
    assert names == ["asked", "sse", "late"]
    others = await read_logs(store.reader, root_plan_id(bytes.fromhex(OTHER)))
    assert [record.name for record in others] == ["sse", "again", "late"]
    assert [record.name for record in await read_logs(store.reader, RUN, with_sessions=False)] == [
        "asked"
    ]


async def test_log_records_of_a_session_alone_create_no_records(store: Store) -> None:
    await store.writer.write_spans(of_session("sse", 2))
    await settle(store)

    assert (await store.reader.list_runs(RunFilter(), 10, None)).items == []
    whole = await store.reader.read_whole_run(SESSION_RUN)
    assert not any(whole.records.values())
    assert [each.name for each in await read_logs(store.reader, SESSION_RUN)] == ["sse"]


async def test_log_records_of_a_session_are_deleted_with_its_last_run(store: Store) -> None:
    for traces in (of_session("sse", 2), of_trace("asked", 1), of_trace("again", 3, OTHER)):
        await store.writer.write_spans(traces)
    await settle(store)
    await store.writer.delete_run(RUN)
    await settle(store)
    assert len(await read_logs(store.reader, SESSION_RUN)) == 1

    await store.writer.delete_run(root_plan_id(bytes.fromhex(OTHER)))

    with pytest.raises(RecordNotFound):
        await read_logs(store.reader, SESSION_RUN)
    assert (await store.reader.list_runs(RunFilter(other_traces=True), 10, None)).items == []
