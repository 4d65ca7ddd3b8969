"""One bad value of a span costs this value, not the span and not the request."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.otel.decoded import spans_in
from tests.otel.made_traces import SECOND, TRACE_ID, body_of, make_span, projection_of, the_call
from tracer.otel.otlp import decode_json
from tracer.records import Kind

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 3}


@pytest.mark.parametrize("bare", ["NaN", "Infinity", "-Infinity"])
def test_bare_number_that_json_lacks_costs_no_span(bare: str) -> None:
    body = body_of(
        make_span(1, "a", {**AGENT, "score": 12.75}), make_span(2, "chat", CHAT, parent=1)
    )

    decoded = decode_json(body.replace(b"12.75", bare.encode()))

    assert (decoded.count, decoded.refused) == (2, [])


def in_base64(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


@pytest.mark.parametrize("convert", [in_base64, lambda each: [*bytes.fromhex(each)]])
def test_ids_in_base64_and_as_bytes_are_accepted(convert: Any) -> None:
    request = json.loads(body_of(make_span(1, "a", AGENT)))
    (span,) = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    span |= {"traceId": convert(span["traceId"]), "spanId": convert(span["spanId"])}

    decoded = decode_json(json.dumps(request).encode())

    (found,) = spans_in(decoded)
    assert (found.trace_id.hex(), found.span_id) == (TRACE_ID, bytes(7) + b"\1")


@pytest.mark.parametrize("link", [None, 5, {"traceId": "x"}, {"traceId": "é", "spanId": 3}])
def test_malformed_link_costs_only_the_link(link: Any) -> None:
    request = json.loads(body_of(make_span(1, "a", AGENT)))
    request["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["links"] = [link]

    decoded = decode_json(json.dumps(request).encode())

    assert (decoded.count, decoded.refused) == (1, [])


def test_end_before_the_start_is_no_negative_duration() -> None:
    run = projection_of(make_span(1, "chat", CHAT, at=(5, 3)))

    (row,) = run.records[Kind.THINK_ACT].values()
    assert row["finished_at"] == row["started_at"]


def test_missing_start_is_that_of_the_earliest_child_or_the_end() -> None:
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"}
    run = projection_of(
        make_span(1, "a", AGENT, at=(-1, 9)),
        make_span(2, "chat", CHAT, parent=1, at=(4, 5)),
        make_span(3, "t", tool, parent=1, at=(-1, 6)),
    )

    plan = run.records[Kind.PLAN][run.root_plan_id]
    assert plan["started_at"].timestamp() * SECOND == 5 * SECOND
    call = the_call(run)
    assert call["started_at"] == call["finished_at"]
