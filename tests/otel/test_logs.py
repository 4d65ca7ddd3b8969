from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from tests.otel.made_traces import TRACE_ID, agent, spans_from
from tracer.otel.otlp.blocks import spans_of, traces_of
from tracer.otel.otlp.decode_logs import decode_logs_protobuf
from tracer.otel.otlp.logs import logs_of


def test_stored_messages_hold_spans_and_log_records() -> None:
    sent = spans_from(agent(1, "planner"))
    body = ExportLogsServiceRequest()
    scope_logs = body.resource_logs.add().scope_logs.add()
    scope_logs.scope.name = "planner"
    record = scope_logs.log_records.add(
        trace_id=bytes.fromhex(TRACE_ID), span_id=sent[0].span_id, observed_time_unix_nano=5
    )
    record.attributes.append(KeyValue(key="event.name", value=AnyValue(string_value="asked")))
    [logs] = decode_logs_protobuf(body.SerializeToString()).traces
    [spans] = traces_of(sent)
    [found] = logs_of([spans.message + logs.message, logs.message])
    assert (found.name, found.time, found.scope) == ("asked", 5, "planner")
    assert spans_of([spans.message + logs.message]) == sent
