"""Responses to REST tools: decoding, size limits, retries and errors."""

import asyncio
import gzip
import json
import zlib
from collections import deque
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from tests.tools.http_servers import endless, head, reply, silence
from tests.tools.rest_calls import api
from tests.tools.short_times import PATIENCE, until
from tracer.errors import InvalidResult, ToolError, ToolUnavailable
from tracer.records.results import error_info

MEGABYTE = 1024 * 1024


Cases = Mapping[str, tuple[bytes, dict[str, Any]]]
"""Answers of a server and settings of the tool, by name."""


async def results_of(cases: Cases) -> dict[str, Any]:
    """Call a tool once for each answer, and return what it returned or raised."""
    waiting = deque(answer for answer, _ in cases.values())
    results: dict[str, Any] = {}
    async with api(lambda _: waiting.popleft()) as inner:
        for name, (_, settings) in cases.items():
            try:
                results[name] = await inner.call(**settings)
            except ToolError as error:
                results[name] = error
    return results


async def result_of(answer: bytes, **settings: Any) -> Any:
    async with api(lambda _: answer) as inner:
        return await inner.call(**settings)


async def failure_of(answer: bytes, **settings: Any) -> ToolError:
    async with api(lambda _: answer) as inner:
        with pytest.raises(ToolError) as failed:
            await inner.call(**settings)
        return failed.value


async def test_json_is_returned_as_values_and_other_text_as_text() -> None:
    value = {"items": [{"a/b": 1}], "ü": None}
    text = json.dumps(value)
    answers = {
        "json": reply(json=value),
        "problem": reply(body=text, content_type="application/problem+json; charset=utf-8"),
        "text": reply(body="[1]", content_type="text/plain"),
        "latin-1": reply(body="grün".encode("latin-1"), content_type="text/plain; charset=latin-1"),
        "broken utf-8": reply(body=b"gr\xfcn", content_type="text/plain"),
        "no type": reply(body="no type at all"),
    }
    assert await results_of({name: (answer, {}) for name, answer in answers.items()}) == {
        "json": value,
        "problem": value,
        "text": "[1]",
        "latin-1": "grün",
        "broken utf-8": "gr\ufffdn",
        "no type": "no type at all",
    }


async def test_response_with_a_binary_codec_as_charset_is_read_as_utf_8() -> None:
    # Decoding punycode takes time in the square of its length, and would stop the event loop.
    body = "grün-" + "x" * 1000
    charsets = ["punycode", "idna", "unicode_escape", "rot13", "base64", "no-such", "utf-7"]
    answers: dict[str, tuple[bytes, dict[str, Any]]] = {
        each: (reply(body=body, content_type=f"text/plain; charset={each}"), {})
        for each in charsets
    }
    assert await results_of(answers) == dict.fromkeys(charsets, body)


async def test_response_without_a_body_returns_its_status() -> None:
    assert await result_of(reply(204), method="DELETE") == {"status": 204}
    assert await result_of(reply(content_type="application/json"), method="HEAD") == {"status": 200}


async def test_configured_paths_select_the_result_from_the_response() -> None:
    whole = {"items": [{"name": "a"}, {"name": "b"}], "a/b": {"~": 5}}
    expected = {"/items/0": {"name": "a"}, "/items/1/name": "b", "/a~1b/~0": 5, "": whole}
    cases = {place: (reply(json=whole), {"response": place}) for place in expected}
    assert await results_of(cases) == expected


async def test_response_without_the_configured_result_path_is_invalid() -> None:
    places = ["/items/2", "/items/x", "/items/-1", "/items/²", "/a"]
    cases = {place: (reply(json={"items": [1, 2]}), {"response": place}) for place in places}
    results = await results_of(cases)
    assert {name: type(each) for name, each in results.items()} == dict.fromkeys(
        cases, InvalidResult
    )


async def test_response_that_cannot_be_decoded_is_invalid() -> None:
    answers = {
        "broken json": reply(body="{", content_type="application/json"),
        "deep json": reply(body="[" * 100_000, content_type="application/json"),
        "long number": reply(body="9" * 10_000, content_type="application/json"),
        "picture": reply(body=b"\x89PNG\xff", content_type="image/png"),
        "not packed": reply(body=b"not packed", content_encoding="gzip"),
    }
    results = await results_of({name: (answer, {}) for name, answer in answers.items()})
    assert {name: type(each) for name, each in results.items()} == dict.fromkeys(
        answers, InvalidResult
    )


async def test_compressed_answers_are_decompressed() -> None:
    packed = reply(body=gzip.compress(b"here"), content_encoding="gzip")
    assert await result_of(packed) == "here"
    async with api(lambda _: packed) as inner:
        await inner.call()
        assert inner.server.received[0].headers["accept-encoding"] == "gzip, deflate"


async def test_response_one_byte_above_the_limit_is_rejected() -> None:
    assert await result_of(reply(body="x" * 10), max_bytes=10) == "x" * 10
    assert isinstance(await failure_of(reply(body="x" * 11), max_bytes=10), InvalidResult)


async def test_decompression_stops_at_the_size_limit() -> None:
    once = gzip.compress(b"\0" * (16 * MEGABYTE), 1)
    bombs = {"gzip": once, "gzip, gzip": gzip.compress(once, 1)}
    cases: dict[str, tuple[bytes, dict[str, Any]]] = {
        f"{status} {encoding}": (reply(status, bomb, content_encoding=encoding), {})
        for status in (200, 500)
        for encoding, bomb in bombs.items()
    }
    assert len(once) < MEGABYTE
    results = await results_of(cases)
    assert {name: type(each) for name, each in results.items()} == {
        name: InvalidResult if name.startswith("200") else ToolError for name in cases
    }


async def test_endless_answer_stops_at_the_size_limit() -> None:
    async def failure(first: bytes, again: bytes) -> ToolError:
        async with api(lambda _: endless(first, again)) as inner, asyncio.timeout(PATIENCE):
            with pytest.raises(ToolError) as failed:
                await inner.call()
            await inner.server.left.wait()
            return failed.value

    packer = zlib.compressobj(wbits=31)
    beginning = packer.compress(b"")
    packed = packer.compress(b"x" * MEGABYTE) + packer.flush(zlib.Z_FULL_FLUSH)
    for status, kind in ((200, InvalidResult), (500, ToolError)):
        plain = await failure(head(status, content_type="text/plain"), b"x" * 65536)
        unpacked = await failure(head(status, content_encoding="gzip") + beginning, packed)
        assert (type(plain), type(unpacked)) == (kind, kind), f"status {status}"


BEGINNINGS = [b"", head() + b"the beginning"]
"""The bytes that a server sends before it goes silent."""


async def test_idempotent_request_without_a_response_is_retried() -> None:
    async def call(first: bytes, settings: dict[str, Any]) -> None:
        async with api(lambda _: silence(first)) as inner:
            with pytest.raises(ToolUnavailable, match=r"sent nothing for 0\.2 s"):
                await inner.call(read_timeout=0.2, **settings)

    repeatable: list[dict[str, Any]] = [
        {"method": "GET"},
        {"method": "POST", "idempotency_key": True},
    ]
    await asyncio.gather(*(call(*each) for each in product(BEGINNINGS, repeatable)))


async def test_post_without_a_response_is_not_retried() -> None:
    async def call(first: bytes) -> None:
        async with api(lambda _: silence(first)) as inner:
            with pytest.raises(ToolError, match="may have been carried out") as failed:
                await inner.call(read_timeout=0.2, method="POST")
            assert not failed.value.may_pass
            await until(lambda: inner.server.received)
            assert len(inner.server.received) == 1

    await asyncio.gather(*map(call, BEGINNINGS))


async def test_broken_connection_is_retried_except_for_post() -> None:
    answers = {"empty": b"", "no http": b"what?\r\n\r\n", "short": head(content_length="10") + b"x"}
    cases = {
        f"{method} {name}": (answer, {"method": method})
        for method in ("GET", "POST")
        for name, answer in answers.items()
    }
    results = await results_of(cases)
    assert {name: each.may_pass for name, each in results.items()} == {
        name: name.startswith("GET") for name in cases
    }


async def test_refused_connection_is_retried_even_for_post() -> None:
    async with api(lambda _: b"") as inner:
        free_port = "127.0.0.2:1"
        with pytest.raises(ToolUnavailable, match="cannot be reached"):
            await inner.call(
                {"q": "a question"},
                base_url=f"http://{free_port}",
                allowed_hosts={free_port},
                method="POST",
            )


async def test_error_for_a_4xx_has_the_status_and_the_start_of_the_body() -> None:
    said = "nope\r\n\0\x1b[31m\u202e " + "x" * 1000
    statuses = [400, 401, 404, 409, 422, 500, 501, 304]
    cases: dict[str, tuple[bytes, dict[str, Any]]] = {
        str(status): (reply(status, said, content_type="text/html"), {}) for status in statuses
    }
    for status, failure in (await results_of(cases)).items():
        assert type(failure) is ToolError
        status_line, _, shown = str(failure).partition(": ")
        assert status_line.startswith(f"The API answered {status} ")
        assert "Whatever" not in status_line  # the server's own words
        if status != "304":
            assert shown.startswith("nope [31m xxx")
            message = error_info(failure).message
            assert len(message) < 600
            assert message.startswith(f"{status_line}: nope [31m xxx")


async def test_retry_after_header_sets_the_delay() -> None:
    expected: list[tuple[dict[str, str], float | None]] = [
        ({"retry_after": "7"}, 7),
        ({"retry_after": "0"}, 0),
        ({"retry_after": "3600"}, 60),
        ({"retry_after": "9" * 400}, 60),
        ({"retry_after": "Sun, 06 Nov 1994 08:49:42 GMT"}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-5"}, None),
        ({"retry_after": "1.5"}, None),
        ({}, None),
    ]
    for status in (429, 503):
        cases: dict[str, tuple[bytes, dict[str, Any]]] = {
            str(headers): (reply(status, "busy", **headers), {}) for headers, _ in expected
        }
        failures = await results_of(cases)
        assert {type(each) for each in failures.values()} == {ToolUnavailable}
        assert {name: each.retry_after for name, each in failures.items()} == {
            str(headers): seconds for headers, seconds in expected
        }
        assert {str(each)[-4:] for each in failures.values()} == {"busy"}


async def test_response_503_is_retried() -> None:
    statuses = [429, 502, 503, 504]
    results = await results_of({str(status): (reply(status), {}) for status in statuses})
    assert {name: each.may_pass for name, each in results.items()} == dict.fromkeys(results, True)


async def test_error_status_is_reported_even_if_the_body_breaks_off() -> None:
    failure = await failure_of(head(500, content_length="100") + b"beginning")
    assert str(failure).startswith("The API answered 500 Internal Server Error")
