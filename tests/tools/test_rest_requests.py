"""The requests that REST tools send, and the validation of their configuration."""

from dataclasses import replace
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.tools.contexts import some_context
from tests.tools.http_servers import Received, reply
from tests.tools.rest_calls import ANYTHING, api
from tests.tools.tables import not_rejected, wrong_values
from tracer.errors import ConfigurationError, InvalidArguments, RegistrationError
from tracer.tools import ToolType
from tracer.tools.http_clients import trace_headers
from tracer.tools.rest import DEFAULT_TIMEOUT, Credential, RestConfig, rest_request, rest_tool

BASE = "http://api.example/v1/"


async def sent(arguments: dict[str, Any], **settings: Any) -> Received:
    """Send a call's request and return it as it arrived."""
    async with api(lambda _: reply(json={})) as inner:
        await inner.call(arguments, **settings)
        return inner.server.received[0]


def target(arguments: dict[str, Any], **settings: Any) -> str:
    config = RestConfig(base_url=BASE, **settings)
    return rest_request(config, arguments, some_context(), Credential()).url.raw_path.decode()


async def test_arguments_without_a_placeholder_become_the_query_of_get_and_delete() -> None:
    arguments = {"city": "Zürich & more", "days": 3, "tags": ["a", "b"], "dry": True, "x": None}
    query = [
        ("city", "Zürich & more"),
        ("days", "3"),
        ("tags", "a"),
        ("tags", "b"),
        ("dry", "true"),
    ]
    for method in ("GET", "DELETE", "HEAD", "OPTIONS", "get"):
        request = await sent(arguments, method=method)
        assert (request.method, request.query, request.body) == (method.upper(), query, b"")


async def test_arguments_without_a_placeholder_become_the_body_of_post_and_put() -> None:
    arguments = {"id": 7, "note": "hohe\ud800 Werte", "values": [1, None], "deep": {"a": 1.5}}
    body = {key: each for key, each in arguments.items() if key != "id"}
    for method in ("POST", "PUT", "PATCH"):
        request = await sent(arguments, method=method, path="/patients/{id}")
        got = (request.path, request.headers["content-type"], request.json)
        assert got == ("/patients/7", "application/json", body), method


async def test_url_and_body_templates_are_filled_with_arguments() -> None:
    request = await sent(
        {"patient": "p 1", "unit": "mmHg", "systolic": 120, "tags": ["x"], "lang": "de", "n": None},
        method="post",
        path="patients/{patient}/readings",
        headers={"Accept-Language": "{lang}", "X-Mode": "strict", "X-Absent": "v{absent}"},
        query={"unit": "in {unit}", "limit": 10, "verbose": True, "absent": "{absent}"},
        body={
            "value": "{systolic}",
            "text": "{systolic} {unit}",
            "tags": "{tags}",
            "null": "{n}",
            "absent": "{absent}",
            "list": ["{absent}", "{unit}", 1],
            "fixed": {"a": [True, None]},
            "braces": "{{unit}}",
        },
    )
    assert request.path == "/patients/p%201/readings"
    assert request.headers["accept-language"] == "de"
    assert request.headers["x-mode"] == "strict"
    assert "x-absent" not in request.headers
    assert request.query == [("unit", "in mmHg"), ("limit", "10"), ("verbose", "true")]
    assert request.json == {
        "value": 120,
        "text": "120 mmHg",
        "tags": ["x"],
        "null": None,
        "list": ["mmHg", 1],
        "fixed": {"a": [True, None]},
        "braces": "{unit}",
    }


async def test_base_url_may_be_a_function() -> None:
    async with api(lambda request: reply(body=request.path)) as inner:
        url = f"{inner.server.url}/deep/"
        assert await inner.call(base_url=lambda: url, path="/a") == "/deep/a"
        assert await inner.call(base_url=lambda: url) == "/deep/"
        for unusable in ("ftp://x", "http://user:secret@x", "http://x:port", "x"):
            with pytest.raises(ConfigurationError) as error:
                await inner.call(base_url=lambda unusable=unusable: unusable)
            assert "secret" not in str(error.value)


@given(value=st.text(min_size=1))
def test_path_argument_with_slashes_stays_in_its_segment(value: str) -> None:
    try:
        path = target({"id": value}, path="/items/{id}/notes")
    except InvalidArguments:
        return
    _, version, items, segment, notes = path.split("/")
    assert (version, items, notes) == ("v1", "items", "notes")
    assert unquote(segment) == value


def test_path_argument_is_percent_encoded() -> None:
    expected = {
        "a/b": "/v1/items/a%2Fb",
        "a?b#c": "/v1/items/a%3Fb%23c",
        "50%": "/v1/items/50%25",
        "...": "/v1/items/...",
        1.5: "/v1/items/1.5",
    }
    assert wrong_values(lambda value: target({"id": value}, path="/items/{id}"), expected) == []


def test_path_argument_that_is_empty_dots_or_no_scalar_is_rejected() -> None:
    # fmt: off
    values: list[object] = [
        "", ".", "..", "../admin", "a/../b", "a/..", "..\\admin", "%2e%2e", "%2E%2E%2Fadmin",
        "..%2fadmin", None, [], ["a"], {}, "\ud800",
    ]
    # fmt: on
    failures = not_rejected(
        InvalidArguments, lambda value: target({"id": value}, path="/items/{id}"), values
    )
    assert failures == []


def test_missing_path_argument_is_rejected() -> None:
    with pytest.raises(InvalidArguments):
        target({}, path="/items/{id}")


def test_header_argument_with_line_break_or_non_ascii_text_is_rejected() -> None:
    values = ["a\r\nX-Forged: 1", "a\0", "ü", "a\nb"]
    failures = not_rejected(
        InvalidArguments,
        lambda value: target({"mode": value}, headers={"X-Mode": "{mode}"}),
        values,
    )
    assert failures == []


def test_url_arguments_that_cannot_be_encoded_are_rejected() -> None:
    for value in ("\ud800", "x" * 70_000):
        with pytest.raises(InvalidArguments):
            target({"q": value})


def test_traceparent_contains_the_run_and_the_call() -> None:
    context = some_context()
    assert context.tool_call_id is not None
    headers = trace_headers(context)
    version, trace, span, flags = headers["traceparent"].split("-")
    assert (version, trace, flags) == ("00", context.root_plan_id.hex, "01")
    assert span == sha256(context.tool_call_id.bytes).hexdigest()[:16]
    assert headers["tracestate"] == f"tracer={context.tool_call_id}"
    assert trace_headers(replace(context, tool_call_id=None)) == {}


async def test_request_has_the_traceparent_header() -> None:
    request = await sent({})
    headers = trace_headers(some_context())
    assert {name: request.headers[name] for name in headers} == headers


async def test_idempotency_key_is_not_sent_by_default() -> None:
    assert "idempotency-key" not in (await sent({}, method="POST")).headers


def _tool_of(parameters: dict[str, Any] = ANYTHING, attempts: int = 1, **settings: Any) -> object:
    config = RestConfig(base_url=BASE, **settings)
    return rest_tool(
        name="x", description="", parameters=parameters, config=config, max_attempts=attempts
    )


def test_rest_tool_has_its_type_and_a_default_timeout() -> None:
    config = RestConfig(base_url=BASE)
    tool = rest_tool(name="x", description="", parameters=ANYTHING, config=config, tags=["web"])
    assert (tool.tool_type, tool.timeout, tool.tags) == (ToolType.REST, DEFAULT_TIMEOUT, {"web"})


def test_idempotent_requests_may_be_retried() -> None:
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        assert _tool_of(attempts=3, method=method)


def test_other_requests_may_be_retried_only_with_an_idempotency_key() -> None:
    for method in ("POST", "PATCH"):
        assert _tool_of(attempts=3, method=method, idempotency_key=True)
        with pytest.raises(RegistrationError):
            _tool_of(attempts=2, method=method)


def test_templates_and_declared_arguments_must_match() -> None:
    declared = {"type": "object", "properties": {"a": {}, "b": {}}}
    assert _tool_of(declared, path="/{a}")
    assert _tool_of(declared, method="POST", path="/{a}", body={"b": "{b}"})
    with pytest.raises(RegistrationError, match="does not declare: c, d"):
        _tool_of(declared, path="/{c}", query={"d": "{d}"})
    with pytest.raises(RegistrationError, match="uses nowhere: b"):
        _tool_of(declared, method="POST", body={"a": "{a}"})


def test_invalid_configuration_is_rejected_without_repeating_secrets() -> None:
    invalid: list[dict[str, Any]] = [
        {"base_url": "ftp://x"},
        {"base_url": "https://user:hunter2@x"},
        {"base_url": "https://x?key=hunter2"},
        {"path": "/a/../b"},
        {"path": "/a//b"},
        {"path": "/a?b=hunter2"},
        {"path": "/{}"},
        {"path": "/{a!r}"},
        {"path": "/{a"},
        {"body": {"a": ["}"]}, "method": "POST"},
        {"response": "items.0"},
        {"headers": {"Authorization": "Bearer hunter2"}},
        {"headers": {"Cookie": "hunter2"}},
        {"headers": {"Traceparent": "x"}},
        {"headers": {"Host": "x"}},
        {"method": "TRACE"},
        {"method": "GET", "body": {}},
        {"auth": {"type": "bearer", "secret": "hunter2"}},
        {"auth": {"type": "bearer", "secret": "env:"}},
        {"auth": {"type": "header", "secret": "env:X", "name": "a: b"}},
        {"auth": {"type": "oauth", "secret": "env:X"}},
        {"allowed_hosts": ["http://x"]},
        {"max_bytes": 0},
        {"read_timeout": 0},
        {"timeout": 0},
        {"timout": 3},
    ]
    failures = not_rejected(
        ValidationError,
        lambda settings: RestConfig(**{"base_url": BASE, **settings}),
        invalid,
        secret="hunter2",
    )
    assert failures == []


def test_configuration_is_read_from_plain_values() -> None:
    config = RestConfig.model_validate(
        {
            "base_url": "https://api.example",
            "method": "post",
            "auth": {"type": "basic", "username": "u", "secret": "file:/run/secrets/x"},
            "response": "/items/0",
            "allowed_hosts": ["inner.example:8080"],
        }
    )
    assert config.method == "POST"
    assert config.allowed_hosts == {"inner.example:8080"}
