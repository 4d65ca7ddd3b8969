"""Writing spans over HTTP: each rejected span is identified for any response."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import aclosing
from http import HTTPStatus

import pytest
from google.rpc.status_pb2 import Status

from api.otlp.routes import TRACES, Accepted
from tests.otel.decoded import spans_in
from tests.otel.made_traces import make_span, spans_from
from tests.otel.sent import traces_of
from tests.tools.http_servers import Received, http_server, reply
from tracer.errors import StoreUnavailable
from tracer.records.spans import Span, TraceSpans
from tracer.storage.http import HttpWriter
from tracer.store import Refusal, WriteAnswer

Rejection = Callable[[Span], str | None]
"""Returns the code with which a span is rejected; None if it is accepted."""


def trace_of(size: int, trace_id: bytes, name: str = "a span") -> TraceSpans:
    spans = spans_from(*(make_span(number, name) for number in range(1, size + 1)))
    [trace] = traces_of(spans)
    return TraceSpans(trace_id, trace.message.replace(trace.trace_id, trace_id), trace.count)


def by_number(span: Span) -> int:
    return int.from_bytes(span.span_id, "big")


def body_of_request(request: Received) -> bytes:
    is_packed = request.headers.get("content-encoding") == "gzip"
    return zlib.decompress(request.body, 31) if is_packed else request.body


def rejecting(rejection: Rejection) -> Callable[[Received], bytes]:
    """Return a server that rejects some spans, and answers as the real one does."""

    def answer(request: Received) -> bytes:
        media_type = request.headers["content-type"]
        decoded = TRACES.decoders[media_type](body_of_request(request))
        refused = [
            Refusal(index, code, f"This span is {code}.")
            for index, span in enumerate(spans_in(decoded))
            if (code := rejection(span)) is not None
        ]
        response = TRACES.answer(Accepted(decoded.count, refused, []))
        return reply(200, response.SerializeToString(), content_type=media_type)

    return answer


async def written(
    rejection: Rejection, *traces: TraceSpans
) -> tuple[list[tuple[int, str, str]], int, int]:
    """Return the refusals, the number of stored spans, and the number of requests of a write."""
    async with (
        http_server(rejecting(rejection)) as server,
        aclosing(HttpWriter(server.url)) as writer,
    ):
        answer = await writer.write_spans(traces)
    refused = [(each.index, each.code, each.detail) for each in answer.refused]
    return refused, answer.stored, len(server.received)


ONE, OTHER = b"one trace, 16 b.", b"another trace 16"


async def test_all_traces_are_sent_in_one_request() -> None:
    assert await written(lambda _: None, trace_of(3, ONE), trace_of(40, OTHER)) == ([], 43, 1)


async def test_storing_no_traces_sends_no_request() -> None:
    assert await written(lambda _: None) == ([], 0, 0)


async def test_rejected_spans_are_identified_from_one_response() -> None:
    def rejection(span: Span) -> str | None:
        return "run_deleted" if span.trace_id == OTHER and by_number(span) != 2 else None

    refused, stored, requests = await written(rejection, trace_of(3, ONE), trace_of(3, OTHER))

    assert refused == [(index, "run_deleted", "This span is run_deleted.") for index in (3, 5)]
    assert (stored, requests) == (4, 1)


@pytest.mark.parametrize("size", [11, 50])
async def test_every_span_of_a_deleted_run_is_rejected(size: int) -> None:
    refused, stored, requests = await written(
        lambda span: "run_deleted" if span.trace_id == OTHER else None,
        *(trace_of(5, ONE), trace_of(size, OTHER), trace_of(5, ONE)),
    )

    assert [index for index, _, _ in refused] == list(range(5, 5 + size))
    assert {(code, detail) for _, code, detail in refused} == {
        ("run_deleted", "This span is run_deleted.")
    }
    assert stored == 10
    assert requests < 6


async def test_many_rejected_spans_of_a_trace_are_identified() -> None:
    def rejection(span: Span) -> str | None:
        return ("one", "other")[by_number(span) % 2] if by_number(span) > 3 else None

    refused, stored, _ = await written(rejection, trace_of(60, ONE))

    assert [(index, code) for index, code, _ in refused] == [
        (index, "other" if index % 2 == 0 else "one") for index in range(3, 60)
    ]
    assert stored == 3


async def test_a_trace_that_is_too_large_is_sent_in_parts() -> None:
    def answer(request: Received) -> bytes:
        body = body_of_request(request)
        if body.count(b"a span") > 4 or b"huge" in body:
            return reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "<h1>Too large</h1>")
        return rejecting(lambda _: None)(request)

    traces = [trace_of(10, ONE), trace_of(1, OTHER, "huge"), trace_of(2, ONE)]
    async with http_server(answer) as server, aclosing(HttpWriter(server.url)) as writer:
        written = await writer.write_spans(traces)

    assert [(each.index, each.code) for each in written.refused] == [(10, "too_large")]
    assert written.stored == 12


async def test_a_trace_with_too_many_secrets_is_sent_in_parts() -> None:
    def answer(request: Received) -> bytes:
        if body_of_request(request).count(b"a span") > 4:
            failure = Status(message="Too many secrets.").SerializeToString()
            return reply(422, failure, content_type=request.headers["content-type"])
        return rejecting(lambda _: None)(request)

    async with http_server(answer) as server, aclosing(HttpWriter(server.url)) as writer:
        assert await writer.write_spans([trace_of(10, ONE)]) == WriteAnswer(10)


async def test_rejection_without_reasons_keeps_the_spans_for_a_retry() -> None:
    def answer(request: Received) -> bytes:
        content = b"\x0a\x04\x08\x01\x12\x00"  # one rejected span and an empty message
        return reply(200, content, content_type=request.headers["content-type"])

    async with http_server(answer) as server, aclosing(HttpWriter(server.url)) as writer:
        with pytest.raises(StoreUnavailable):
            await writer.write_spans([trace_of(1, ONE)])
        assert await writer.write_spans([]) == WriteAnswer(0)
