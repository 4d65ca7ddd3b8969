import json
import logging
import traceback
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.tools.http_servers import Answer, Received, head, http_server, reply
from tests.tools.rest_calls import Api, api
from tracer.errors import AddressRefused, ToolError
from tracer.tools.executors.rest_config import RestConfig
from tracer.tools.secrets import MAX_FILE_BYTES, read_secret

SECRET = 'pa"ss/wörd of 7'
TOKEN = "canary/4711+7"
QUESTION = "what was asked"


@pytest.fixture(autouse=True)
def _secrets_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_PASSWORD", SECRET)
    monkeypatch.setenv("API_TOKEN", TOKEN)


BEARER = {"type": "bearer", "secret": "env:API_TOKEN"}
BASIC = {"type": "basic", "username": "somebody", "secret": "env:API_PASSWORD"}
HEADER = {"type": "header", "name": "X-Api-Key", "secret": "env:API_TOKEN"}
PAIR = b64encode(f"somebody:{SECRET}".encode()).decode()


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        (BEARER, "authorization", f"Bearer {TOKEN}"),
        (BASIC, "authorization", f"Basic {PAIR}"),
        (HEADER, "x-api-key", TOKEN),
    ],
)
async def test_the_tool_shows_who_it_is(auth: dict[str, str], header: str, value: str) -> None:
    async with api(lambda _: reply(json={})) as inner:
        await inner.call(auth=auth)
        assert inner.server.received[0].headers[header] == value


async def test_the_secret_is_read_at_each_call(tmp_path: Path) -> None:
    file = tmp_path / "token"
    async with api(lambda _: reply(json={})) as inner:
        tool = inner.tool(auth={"type": "bearer", "secret": f"file:{file}"})
        for value in ("first", "second\n", "third\r\n"):
            file.write_text(value)
            await tool.run({}, inner.context)
        shown = [each.headers["authorization"] for each in inner.server.received]
        assert shown == ["Bearer first", "Bearer second", "Bearer third"]


@pytest.mark.parametrize(
    "reference", ["env:NOT_THERE", "env:EMPTY", "file:not/there", "file:.", "file:big", "file:bin"]
)
async def test_a_secret_that_is_missing_is_named_and_nothing_is_sent(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMPTY", "")
    tmp_path.joinpath("big").write_text("x" * (MAX_FILE_BYTES + 1))
    tmp_path.joinpath("bin").write_bytes(b"\xff")
    async with api(lambda _: reply(json={})) as inner:
        with pytest.raises(ToolError, match=reference):
            await inner.call(auth={"type": "bearer", "secret": reference})
        assert inner.server.received == []


@pytest.mark.parametrize("value", ["two\nlines", "grün", "spaced "])
async def test_a_secret_that_no_header_can_hold_is_named_and_not_shown(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", value)
    async with api(lambda _: reply(json={})) as inner:
        with pytest.raises(ToolError, match="env:API_TOKEN") as failed:
            await inner.call(auth=BEARER)
        assert value not in str(failed.value)
        assert inner.server.received == []


def echoed(request: Received) -> dict[str, Any]:
    """Return all that a server could echo."""
    return {
        "headers": dict(request.headers),
        "password": SECRET,
        TOKEN: [f"in a key, and {TOKEN} in text", TOKEN[:-1]],
        "number": 7,
    }


@pytest.mark.parametrize("auth", [BEARER, BASIC, HEADER])
async def test_an_echoed_secret_is_in_no_result(auth: dict[str, str]) -> None:
    mine = [SECRET, PAIR] if auth is BASIC else [TOKEN]
    answers: dict[str, Answer] = {
        "/json": lambda request: reply(json=echoed(request)),
        "/text": lambda request: reply(body=str(echoed(request)), content_type="text/plain"),
        "/raw": lambda request: reply(
            # PHP's way of writing JSON, and what stands in a link.
            body=json.dumps(echoed(request)).replace("/", "\\/") + quote(mine[0], safe=""),
            content_type="text/plain",
        ),
    }
    async with api(lambda request: answers[request.path](request)) as inner:
        for path in answers:
            result = await inner.call(auth=auth, path=path)
            shown = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
            assert "[hidden]" in shown
            for secret in mine:
                for form in {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}:
                    assert form not in shown.replace("\\/", "/")
        picked = await inner.call(auth=auth, path="/json", response="/headers/host")
        assert picked == inner.server.host


async def _shown_of_failures(inner: Api, **settings: Any) -> str:
    with pytest.raises(ToolError) as failed:
        await inner.call({"q": QUESTION}, auth=BEARER, **settings)
    return "".join([*traceback.format_exception(failed.value), repr(failed.value)])


async def test_no_error_shows_the_secret_or_what_was_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    answers: dict[str, Answer] = {
        "/refused": lambda request: reply(400, json.dumps(dict(request.headers))),
        "/busy": lambda request: reply(503, f"{'x' * 495}{TOKEN}"),
        "/broken": lambda request: head(200, content_length="1000") + b"...",
        "/nothing": lambda request: b"",
        "/redirect": lambda request: reply(302, location=f"http://{TOKEN}.example/"),
        "/elsewhere": lambda request: reply(302, location=f"http://127.0.0.1:1/{TOKEN}"),
        "/name": lambda request: reply(302, location="http://canary-4711.example/"),
        "/large": lambda request: reply(body=TOKEN * 10),
        "/ill": lambda request: f"HTTP/1.1 200 OK\r\n{TOKEN}\r\n\r\n".encode(),
    }
    async with api(lambda request: answers[request.path](request)) as inner:
        for path in answers:
            shown = await _shown_of_failures(inner, path=path, max_bytes=20)
            assert TOKEN not in shown
            assert QUESTION not in shown
            assert quote(QUESTION) not in shown
    assert quote(QUESTION) not in caplog.text


async def test_a_refused_host_that_is_the_secret_is_not_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("API_TOKEN", "canary4711")

    async def look_up(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with api(lambda _: reply(302, location="http://canary4711.evil/"), look_up) as inner:
        with pytest.raises(AddressRefused) as failed:
            await inner.call(auth=BEARER)
        assert str(failed.value).startswith("[hidden].evil is no public address")


async def test_nothing_is_logged_of_a_call_but_what_httpcore_says_of_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with http_server(lambda _: reply(json={})) as server:
        config = RestConfig.model_validate(
            {"base_url": server.url, "allowed_hosts": [server.host], "auth": BEARER}
        )
        assert TOKEN not in repr(config)
    async with api(lambda _: reply(json={})) as inner:
        await inner.call({"q": QUESTION}, auth=BEARER)
    assert TOKEN not in caplog.text
    assert quote(QUESTION) not in caplog.text


def test_a_secret_is_shown_nowhere_by_itself() -> None:
    secret = read_secret("env:X", {"X": TOKEN})
    assert TOKEN not in f"{secret} {secret!r}"
    assert secret.get_secret_value() == TOKEN
