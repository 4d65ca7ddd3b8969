import asyncio
import gzip
import json
import zlib
from typing import Any

import pytest

from tests.tools.http_servers import endless, head, reply, silence
from tests.tools.mcp_servers import until
from tests.tools.rest_calls import api
from tracer.errors import InvalidResult, ToolError, ToolUnavailable
from tracer.tools.results import error_info

MEGABYTE = 1024 * 1024


async def result_of(answer: bytes, **settings: Any) -> Any:
    async with api(lambda _: answer) as inner:
        return await inner.call(**settings)


async def failure_of(answer: bytes, **settings: Any) -> ToolError:
    async with api(lambda _: answer) as inner:
        with pytest.raises(ToolError) as failed:
            await inner.call(**settings)
        return failed.value


async def test_json_comes_back_as_it_is_and_other_text_as_text() -> None:
    value = {"items": [{"a/b": 1}], "ü": None}
    assert await result_of(reply(json=value)) == value
    problem = reply(body=json.dumps(value), content_type="application/problem+json; charset=utf-8")
    assert await result_of(problem) == value
    assert await result_of(reply(body="[1]", content_type="text/plain")) == "[1]"
    assert (
        await result_of(
            reply(body="grün".encode("latin-1"), content_type="text/plain; charset=latin-1")
        )
        == "grün"
    )
    assert await result_of(reply(body=b"gr\xfcn", content_type="text/plain")) == "gr\ufffdn"
    assert await result_of(reply(body="no type at all")) == "no type at all"


async def test_an_answer_without_a_body_is_its_status() -> None:
    assert await result_of(reply(204), method="DELETE") == {"status": 204}
    assert await result_of(reply(content_type="application/json"), method="HEAD") == {"status": 200}


@pytest.mark.parametrize(
    ("place", "result"),
    [
        ("/items/0", {"name": "a"}),
        ("items.1.name", "b"),
        ("/a~1b/~0", 5),
        ("", {"items": [{"name": "a"}, {"name": "b"}], "a/b": {"~": 5}}),
        ({"first": "/items/0/name", "deep": "a/b.~"}, {"first": "a", "deep": 5}),
    ],
)
async def test_the_result_is_what_the_configuration_takes_out_of_the_answer(
    place: str | dict[str, str], result: object
) -> None:
    answer = reply(json={"items": [{"name": "a"}, {"name": "b"}], "a/b": {"~": 5}})
    assert await result_of(answer, response=place) == result


@pytest.mark.parametrize("place", ["/items/2", "items.x", "/items/-1", "/items/²", {"a": "b"}])
async def test_an_answer_without_what_it_should_hold_is_no_result(place: Any) -> None:
    failure = await failure_of(reply(json={"items": [1, 2]}), response=place)
    assert isinstance(failure, InvalidResult)


@pytest.mark.parametrize(
    "answer",
    [
        reply(body="{", content_type="application/json"),
        reply(body="[" * 100_000, content_type="application/json"),
        reply(body="9" * 10_000, content_type="application/json"),
        reply(body=b"\x89PNG\xff", content_type="image/png"),
        reply(body=b"not packed", content_encoding="gzip"),
    ],
)
async def test_what_cannot_be_read_is_no_result(answer: bytes) -> None:
    assert isinstance(await failure_of(answer), InvalidResult)


async def test_packed_answers_are_unpacked() -> None:
    packed = reply(body=gzip.compress(b"here"), content_encoding="gzip")
    assert await result_of(packed) == "here"
    async with api(lambda _: packed) as inner:
        await inner.call()
        assert inner.server.received[0].headers["accept-encoding"] == "gzip, deflate"


async def test_an_answer_may_be_as_large_as_allowed_and_not_a_byte_larger() -> None:
    assert await result_of(reply(body="x" * 10), max_bytes=10) == "x" * 10
    assert isinstance(await failure_of(reply(body="x" * 11), max_bytes=10), InvalidResult)


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("layers", [1, 2])
async def test_a_bomb_is_not_unpacked_further_than_the_limit(status: int, layers: int) -> None:
    bomb, encoding = b"\0" * (64 * MEGABYTE), ", ".join(["gzip"] * layers)
    for _ in range(layers):
        bomb = gzip.compress(bomb, 1)
    assert len(bomb) < MEGABYTE
    failure = await failure_of(reply(status, bomb, content_encoding=encoding))
    assert isinstance(failure, InvalidResult) == (status == 200)


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("packed", [False, True])
async def test_an_endless_answer_stops_at_the_limit(status: int, packed: bool) -> None:
    chunk = b"x" * 65536
    start = head(status, content_type="text/plain")
    if packed:
        packer = zlib.compressobj(wbits=31)
        start = head(status, content_encoding="gzip") + packer.compress(b"")
        chunk = packer.compress(b"x" * 10**7) + packer.flush(zlib.Z_FULL_FLUSH)

    async with api(lambda _: endless(start, chunk)) as inner:
        async with asyncio.timeout(60):
            with pytest.raises(ToolError) as failed:
                await inner.call()
            await inner.server.left.wait()
        assert isinstance(failed.value, InvalidResult) == (status == 200)


@pytest.mark.parametrize(
    "settings", [{"method": "GET"}, {"method": "POST", "idempotency_key": True}]
)
@pytest.mark.parametrize("first", [b"", head() + b"the beginning"])
async def test_silence_may_pass_where_the_request_may_be_repeated(
    settings: dict[str, Any], first: bytes
) -> None:
    async with api(lambda _: silence(first)) as inner:
        with pytest.raises(ToolUnavailable, match=r"silent for 0\.2 s"):
            await inner.call(read_timeout=0.2, **settings)


@pytest.mark.parametrize("first", [b"", head() + b"the beginning"])
async def test_silence_after_a_post_is_no_reason_to_send_it_again(first: bytes) -> None:
    async with api(lambda _: silence(first)) as inner:
        with pytest.raises(ToolError, match="may have been carried out") as failed:
            await inner.call(read_timeout=0.2, method="POST")
        assert not failed.value.may_pass
        await until(lambda: bool(inner.server.received))
        assert len(inner.server.received) == 1


@pytest.mark.parametrize(
    "answer", [b"", b"what?\r\n\r\n", head(content_length="10") + b"short"], ids=len
)
async def test_a_broken_connection_may_pass_unless_it_carried_a_post(answer: bytes) -> None:
    assert (await failure_of(answer)).may_pass
    failure = await failure_of(answer, method="POST")
    assert not failure.may_pass


async def test_what_cannot_be_reached_may_pass_even_for_a_post() -> None:
    async with api(lambda _: b"") as inner:
        free_port = "127.0.0.2:1"
        with pytest.raises(ToolUnavailable, match="cannot be reached"):
            await inner.call(
                {"q": "a question"},
                base_url=f"http://{free_port}",
                allowed_hosts={free_port},
                method="POST",
            )


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500, 501, 304])
async def test_a_refusal_tells_status_and_beginning_of_what_was_said(status: int) -> None:
    said = "nope\r\n\0\x1b[31m\u202e " + "x" * 1000
    failure = await failure_of(reply(status, said, content_type="text/html"))
    assert type(failure) is ToolError
    status_line, _, shown = str(failure).partition(": ")
    assert status_line.startswith(f"The API answered {status} ")
    assert "Whatever" not in status_line
    if status != 304:
        assert shown.startswith("nope [31m xxx")
        told = error_info(failure).message
        assert len(told) < 600
        assert told.startswith(f"{status_line}: nope [31m xxx")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7),
        ({"retry_after": "0"}, 0),
        ({"retry_after": "3600"}, 60),
        ({"retry_after": "9" * 400}, 60),
        (
            {
                "date": "Sun, 06 Nov 1994 08:49:37 GMT",
                "retry_after": "Sun, 06 Nov 1994 08:49:42 GMT",
            },
            5,
        ),
        (
            {
                "date": "Sun, 06 Nov 1994 08:49:37 GMT",
                "retry_after": "Sun, 06 Nov 1994 08:49:00 GMT",
            },
            0,
        ),
        ({"retry_after": "Sun, 06 Nov 1994 08:49:42 GMT"}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-5"}, None),
        ({"retry_after": "1.5"}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_is_busy_says_when_to_come_again(
    status: int, headers: dict[str, str], seconds: float | None
) -> None:
    failure = await failure_of(reply(status, "busy", **headers))
    assert isinstance(failure, ToolUnavailable)
    assert failure.retry_after == seconds
    assert str(failure).endswith("busy")


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_server_that_is_busy_is_tried_again(status: int) -> None:
    assert (await failure_of(reply(status))).may_pass


async def test_a_failure_is_told_even_when_its_body_breaks_off() -> None:
    failure = await failure_of(head(500, content_length="100") + b"beginning")
    assert str(failure).startswith("The API answered 500 Internal Server Error")
