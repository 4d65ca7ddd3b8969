"""Secrets of REST tools are sent only to their API, and appear nowhere else."""

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
from tracer.tools.http_clients import MAX_FILE_BYTES, read_secret
from tracer.tools.rest import RestConfig

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
QUERY = {"type": "query", "name": "api_key", "secret": "env:API_TOKEN"}
PAIR = b64encode(f"somebody:{SECRET}".encode()).decode()


async def test_each_kind_of_authentication_sends_its_header() -> None:
    async with api(lambda _: reply(json={})) as inner:
        for auth in (BEARER, BASIC, HEADER):
            await inner.call(auth=auth)
        bearer, basic, header = (each.headers for each in inner.server.received)
    assert bearer["authorization"] == f"Bearer {TOKEN}"
    assert basic["authorization"] == f"Basic {PAIR}"
    assert header["x-api-key"] == TOKEN


async def test_secret_in_the_query_is_sent_exactly_once() -> None:
    async with api(lambda _: reply(json={})) as inner:
        await inner.call({"q": "x", "api_key": "forged"}, auth=QUERY)
        await inner.call({"q": "x"}, auth=QUERY, method="POST")
        queries = [each.query for each in inner.server.received]
    assert [sorted(each) for each in queries] == [
        [("api_key", TOKEN), ("q", "x")],
        [("api_key", TOKEN)],
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {"headers": {"X-Api-Key": "canary"}},
        {"headers": {"x_apikey": "canary"}},
        {"headers": {"X-Auth-Token": "canary"}},
        {"headers": {"X-Other": "Bearer canary"}},
        {"headers": {"authorization": "{value}"}},
        {"query": {"apiKey": "canary"}},
        {"query": {"access_token": "canary"}},
    ],
)
def test_a_literal_secret_in_code_is_rejected_and_not_repeated(settings: Any) -> None:
    with pytest.raises(ValueError, match=r"is a secret.*env:NAME") as caught:
        RestConfig(base_url="https://a.example", **settings)
    assert "canary" not in str(caught.value)


def test_secret_references_and_templates_in_settings_are_accepted() -> None:
    headers = {"X-Api-Key": "{key}", "X-Token-Count": "5", "X-Api-Key-Type": "user"}
    config = RestConfig(base_url="https://a.example", headers=headers, query={"max_tokens": 5})

    assert config.headers == headers


async def test_secret_is_read_from_the_environment_at_each_call(tmp_path: Path) -> None:
    file = tmp_path / "token"
    async with api(lambda _: reply(json={})) as inner:
        tool = inner.tool(auth={"type": "bearer", "secret": f"file:{file}"})
        for value in ("first", "second\n", "third\r\n"):
            file.write_text(value)
            await tool.run({}, inner.context)
        shown = [each.headers["authorization"] for each in inner.server.received]
        assert shown == ["Bearer first", "Bearer second", "Bearer third"]


async def test_call_with_a_missing_secret_names_it_and_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMPTY", "")
    tmp_path.joinpath("big").write_text("x" * (MAX_FILE_BYTES + 1))
    tmp_path.joinpath("bin").write_bytes(b"\xff")
    env = ("env:NOT_THERE", "env:EMPTY")
    async with api(lambda _: reply(json={})) as inner:
        for reference in (*env, "file:not/there", "file:.", "file:big", "file:bin"):
            with pytest.raises(ToolError, match=reference):
                await inner.call(auth={"type": "bearer", "secret": reference})
        assert inner.server.received == []


async def test_secret_that_is_invalid_in_a_header_is_named_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with api(lambda _: reply(json={})) as inner:
        for value in ("two\nlines", "grün", "spaced "):
            monkeypatch.setenv("API_TOKEN", value)
            with pytest.raises(ToolError, match="env:API_TOKEN") as failed:
                await inner.call(auth=BEARER)
            assert value not in str(failed.value)
        assert inner.server.received == []


def echoed(request: Received) -> dict[str, Any]:
    """Return everything that a server could echo."""
    return {
        "headers": dict(request.headers),
        "query": request.query,
        "password": SECRET,
        TOKEN: [f"in a key, and {TOKEN} in text", TOKEN[:-1]],
        "number": 7,
    }


@pytest.mark.parametrize("auth", [BEARER, BASIC, HEADER, QUERY], ids=lambda auth: auth["type"])
async def test_results_do_not_contain_an_echoed_secret(auth: dict[str, str]) -> None:
    mine = [SECRET, PAIR] if auth is BASIC else [TOKEN]
    answers: dict[str, Answer] = {
        "/json": lambda request: reply(json=echoed(request)),
        "/text": lambda request: reply(body=str(echoed(request)), content_type="text/plain"),
        "/url": lambda request: reply(body=f"{quote(mine[0])} and {TOKEN[:-1]}"),
        "/raw": lambda request: reply(
            # JSON as PHP writes it, and a URL-encoded secret.
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
                for form in {
                    secret,
                    json.dumps(secret)[1:-1],
                    quote(secret, safe=""),
                    quote(secret),
                }:
                    assert form not in shown.replace("\\/", "/")
        picked = await inner.call(auth=auth, path="/json", response="/headers/host")
        assert picked == inner.server.host


async def _shown_of_failures(inner: Api, **settings: Any) -> str:
    with pytest.raises(ToolError) as failed:
        await inner.call({"q": QUESTION}, auth=BEARER, **settings)
    return "".join([*traceback.format_exception(failed.value), repr(failed.value)])


async def test_errors_contain_neither_the_secret_nor_the_arguments(
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


async def test_a_refused_host_does_not_reveal_the_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("API_TOKEN", "canary4711")

    async def look_up(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with api(lambda _: reply(302, location="http://canary4711.evil/"), look_up) as inner:
        with pytest.raises(AddressRefused) as failed:
            await inner.call(auth=BEARER)
        assert str(failed.value).startswith("[hidden].evil is not a public address")


async def test_calls_log_neither_the_secret_nor_the_arguments(
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


def test_repr_of_a_secret_does_not_show_it() -> None:
    secret = read_secret("env:X", {"X": TOKEN})
    assert TOKEN not in f"{secret} {secret!r}"
    assert secret.get_secret_value() == TOKEN
