"""Log requests are decoded like trace requests and stored with spans."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tests.otel.made_logs import ORIGIN, SECOND, logs_as_traces, made_log, request_with
from tests.otel.made_traces import TRACE_ID, agent, make_span, spans_from
from tests.otel.sent import encode_json, traces_of
from tests.profiles import scaled
from tracer.otel.dialects import session_of
from tracer.otel.otlp import (
    Decoded,
    UndecodableTraces,
    decode_logs_json,
    decode_logs_protobuf,
    decode_protobuf,
    redacted_traces,
)
from tracer.otel.otlp.blocks import (
    blocks_with,
    contents_of,
    merge_messages,
    pack_block,
    sent_spans,
    single_spans,
)
from tracer.otel.otlp.spans import encode_protobuf, logs_of, session_run_id
from tracer.otel.projection import project_run
from tracer.records.spans import LogRecord
from tracer.redaction import Redaction

OTHER = "1af7651916cd43dd8448eb211c80319c"
NO_TRACE = "00" * 16


def json_of(request: ExportLogsServiceRequest) -> bytes:
    """Return a request as OTLP/JSON."""
    records = [
        record
        for resource_logs in request.resource_logs
        for scope_logs in resource_logs.scope_logs
        for record in scope_logs.log_records
    ]
    said = json_format.MessageToDict(request)
    ids = iter(records)
    for resource_logs in said["resourceLogs"]:
        for scope_logs in resource_logs["scopeLogs"]:
            for fields in scope_logs["logRecords"]:
                record = next(ids)
                fields |= {"traceId": record.trace_id.hex(), "spanId": record.span_id.hex()}
    return json.dumps(said).encode()


def records_in(decoded: Decoded) -> list[LogRecord]:
    return logs_of(trace.message for trace in decoded.traces)


def test_spans_and_log_records_are_read_from_one_message() -> None:
    sent = spans_from(agent(1, "planner"))
    [logs] = logs_as_traces(made_log("asked", 5, span_id=1))
    [spans] = traces_of(sent)
    [found] = logs_of([spans.message + logs.message, logs.message])
    assert (found.name, found.time, found.scope) == ("asked", (ORIGIN + 5) * SECOND, "planner")
    assert list(sent_spans(spans.message + logs.message)) == sent


def test_json_and_protobuf_log_requests_give_the_same_records() -> None:
    request = request_with(
        made_log("asked", 1, span_id=1, body="Hi \0", prompt="a"),
        made_log("answered", 2, trace_id=OTHER),
    )
    protobuf = decode_logs_protobuf(request.SerializeToString())
    assert [trace.trace_id.hex() for trace in protobuf.traces] == [TRACE_ID, OTHER]
    assert protobuf.indexes == [0, 1]
    assert decode_logs_json(json_of(request)) == protobuf


@pytest.mark.parametrize("decode", ["protobuf", "json"])
def test_records_that_cannot_be_stored_are_rejected_alone(decode: str) -> None:
    odd = made_log("odd", 1)
    odd.span_id = b"123"
    request = request_with(
        made_log("fine", 1), made_log("no trace", 1, trace_id=NO_TRACE), odd, made_log("also")
    )
    decoded = (
        decode_logs_protobuf(request.SerializeToString())
        if decode == "protobuf"
        else decode_logs_json(json_of(request))
    )
    assert [(each.index, each.reason) for each in decoded.refused] == [
        (1, "Its trace id must be 16 bytes that are not all zero."),
        (2, "Its span id must be 8 bytes."),
    ]
    assert {record.name for record in records_in(decoded)} == {"fine", "also"}
    assert decoded.indexes == [0, 3]


def test_malformed_json_record_is_rejected_alone() -> None:
    records: list[object] = [{"traceId": "xyz"}, 7, {"traceId": TRACE_ID, "eventName": "fine"}]
    said = {"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}
    decoded = decode_logs_json(json.dumps(said).encode())
    assert [record.name for record in records_in(decoded)] == ["fine"]
    assert [each.index for each in decoded.refused] == [0, 1]


def test_log_record_with_a_deep_value_or_lone_surrogate_affects_no_other() -> None:
    deep = '{"arrayValue":{"values":[' * 60 + "{}" + "]}}" * 60
    body = (
        '{"resourceLogs":[{"scopeLogs":[{"logRecords":['
        f'{{"traceId":"{TRACE_ID}","body":{deep}}},'
        f'{{"traceId":"{TRACE_ID}","body":{{"stringValue":"a\\ud800b"}}}}]}}]}}]}}'
    )
    decoded = decode_logs_json(body.encode())
    assert [each.index for each in decoded.refused] == [0]
    assert len(records_in(decoded)) == 1


def test_log_request_of_another_form_is_rejected() -> None:
    for body in (b"[]", b"7", b'{"resourceLogs": 7}', b'{"resourceLogs": [7]}', b"{"):
        with pytest.raises(UndecodableTraces):
            decode_logs_json(body)
    with pytest.raises(UndecodableTraces):
        decode_logs_protobuf(b"\x0f\xff")


def test_records_without_a_trace_go_to_the_run_of_their_session() -> None:
    request = request_with(
        made_log("codex.sse_event", 1, trace_id=NO_TRACE, conversation__id="c-1"),
        made_log("codex.sse_event", 2, conversation__id="c-1"),
        made_log("codex.sse_event", 3, trace_id=NO_TRACE),
        scope="codex_otel.log_only",
    )
    for decoded in (
        decode_logs_protobuf(request.SerializeToString(), session_of=session_of),
        decode_logs_json(json_of(request), session_of=session_of),
    ):
        run_ids = [trace.trace_id for trace in decoded.traces]
        assert run_ids == [session_run_id("c-1"), bytes.fromhex(TRACE_ID)]
        assert [each.index for each in decoded.refused] == [2]
    assert len(decode_logs_protobuf(request.SerializeToString()).refused) == 2


def test_run_made_only_from_the_log_records_of_a_session_has_no_records() -> None:
    logs = logs_as_traces(
        made_log("codex.sse_event", 1, trace_id=NO_TRACE, conversation__id="c-1"),
        scope="codex_otel",
    )
    run = project_run([trace.message for trace in logs])
    assert run.root_plan_id == session_run_id("c-1")
    assert not any(run.rows.values())


def test_log_records_in_a_trace_request_are_not_stored() -> None:
    [logs] = logs_as_traces(made_log("smuggled", 1))
    body = encode_protobuf(spans_from(make_span(1, "a span")))
    [trace] = decode_protobuf(body + logs.message).traces
    assert logs_of([trace.message]) == []
    assert len(list(sent_spans(trace.message))) == 1


def test_packed_blocks_contain_each_span_and_log_record_once() -> None:
    [spans] = traces_of(spans_from(agent(1, "planner"), make_span(2, "x", parent=1)))
    [logs] = logs_as_traces(*(made_log(f"e{n}", n, span_id=1) for n in range(9)))
    alone = [each.message for each in (*single_spans(spans), *single_spans(logs))]
    now = datetime(2026, 1, 1, tzinfo=UTC)
    packed = set()
    for seed in range(5):
        mixed = random.Random(seed).sample([*alone, *alone], 2 * len(alone))
        arrived = [(message, now + timedelta(0, n)) for n, message in enumerate(mixed)]
        blocks = list(blocks_with(merge_messages(arrived), 5_000))
        assert sum(block.spans for block in blocks) == 11
        packed.add(tuple(block.body for block in blocks))
    assert len(packed) == 1
    assert contents_of(packed.pop()) == contents_of(map(pack_block, alone))


def test_exported_log_records_are_standard_json() -> None:
    [trace] = logs_as_traces(made_log("asked", 1, span_id=1))
    document = json.loads(encode_json([], logs_of([trace.message])))
    [record] = document["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert (record["traceId"], record["spanId"]) == (TRACE_ID, "0000000000000001")


def test_secrets_at_any_place_of_a_log_record_are_masked() -> None:
    request = request_with(made_log(SECRET, 1, body=SECRET))
    [resource_logs] = request.resource_logs
    [scope_logs] = resource_logs.scope_logs
    [record] = scope_logs.log_records
    record.severity_text = SECRET
    nested = record.attributes.add(key=SECRET).value.kvlist_value.values.add(key="a").value
    nested.array_value.values.add(bytes_value=SECRET.encode())
    resource_logs.resource.attributes.add(key="r").value.string_value = SECRET
    scope_logs.scope.name = SECRET
    scope_logs.scope.attributes.add(key="s").value.string_value = SECRET
    more = scope_logs.log_records.add(trace_id=record.trace_id, span_id=b"12345678")
    more.body.kvlist_value.values.add(key="password").value.int_value = 12345678
    decoded = decode_logs_protobuf(request.SerializeToString())

    [stored] = redacted_traces(decoded.traces, Redaction())

    assert SECRET.encode() not in stored.message
    records = logs_of([stored.message])
    assert "12345678" not in repr([each.body for each in records])
    assert {each.trace_id.hex() for each in records} == {TRACE_ID}
    assert {each.span_id for each in records} == {None, b"12345678"}


SECRET = "sk-ant-api03-" + "a1B2" * 20


@settings(max_examples=scaled(60))
@given(data=st.binary(max_size=60), seed=st.integers(0, 2**32))
def test_random_log_requests_raise_only_documented_errors(data: bytes, seed: int) -> None:
    chance = random.Random(seed)
    body = bytearray(request_with(made_log("a", 1, body="b"), made_log("c", 2)).SerializeToString())
    for byte in data:
        body[chance.randrange(len(body))] = byte
    try:
        decoded = decode_logs_protobuf(bytes(body))
    except UndecodableTraces:
        return
    for trace in redacted_traces(decoded.traces, Redaction()):
        assert len(logs_of([trace.message])) <= trace.count
        project_run([trace.message])
