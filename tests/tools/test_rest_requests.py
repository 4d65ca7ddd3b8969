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
from tracer.errors import ConfigurationError, InvalidArguments, RegistrationError
from tracer.tools.definition import ToolType
from tracer.tools.executors.rest import DEFAULT_TIMEOUT, rest_tool
from tracer.tools.executors.rest_config import RestConfig
from tracer.tools.executors.rest_request import rest_request
from tracer.tools.trace_headers import trace_headers

BASE = "http://api.example/v1/"

# fmt: off
UNFIT_FOR_A_PATH: list[object] = [
    "", ".", "..", "../admin", "a/../b", "a/..", "..\\admin", "%2e%2e", "%2E%2E%2Fadmin",
    "..%2fadmin", None, [], ["a"], {}, "\ud800",
]
# fmt: on


async def sent(arguments: dict[str, Any], **settings: Any) -> Received:
    """Send a call's request and return it as it arrived."""
    async with api(lambda _: reply(json={})) as inner:
        await inner.call(arguments, **settings)
        return inner.server.received[0]


def target(arguments: dict[str, Any], **settings: Any) -> str:
    config = RestConfig(base_url=BASE, **settings)
    return rest_request(config, arguments, some_context(), {}).url.raw_path.decode()


@pytest.mark.parametrize("method", ["GET", "DELETE", "HEAD", "OPTIONS", "get"])
async def test_arguments_without_a_place_go_into_the_query_of_a_reading_request(
    method: str,
) -> None:
    arguments = {"city": "Zürich & more", "days": 3, "tags": ["a", "b"], "dry": True, "x": None}
    request = await sent(arguments, method=method)
    assert request.method == method.upper()
    assert request.query == [
        ("city", "Zürich & more"),
        ("days", "3"),
        ("tags", "a"),
        ("tags", "b"),
        ("dry", "true"),
    ]
    assert request.body == b""


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_arguments_without_a_place_are_the_json_body_of_a_writing_request(
    method: str,
) -> None:
    arguments = {"id": 7, "note": "hohe\ud800 Werte", "values": [1, None], "deep": {"a": 1.5}}
    request = await sent(arguments, method=method, path="/patients/{id}")
    assert request.path == "/patients/7"
    assert request.headers["content-type"] == "application/json"
    assert request.json == {key: each for key, each in arguments.items() if key != "id"}


async def test_templates_put_arguments_where_they_belong() -> None:
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


async def test_the_base_url_may_be_known_at_run_time_only() -> None:
    async with api(lambda request: reply(body=request.path)) as inner:
        url = f"{inner.server.url}/deep/"
        assert await inner.call(base_url=lambda: url, path="/a") == "/deep/a"
        assert await inner.call(base_url=lambda: url) == "/deep/"
        for unusable in ("ftp://x", "http://user:secret@x", "http://x:port", "x"):
            with pytest.raises(ConfigurationError) as error:
                await inner.call(base_url=lambda unusable=unusable: unusable)
            assert "secret" not in str(error.value)


@given(value=st.text(min_size=1))
def test_an_argument_never_leaves_its_segment_of_the_path(value: str) -> None:
    try:
        path = target({"id": value}, path="/items/{id}/notes")
    except InvalidArguments:
        return
    _, version, items, segment, notes = path.split("/")
    assert (version, items, notes) == ("v1", "items", "notes")
    assert unquote(segment) == value


@pytest.mark.parametrize(
    ("value", "segment"),
    [("a/b", "a%2Fb"), ("a?b#c", "a%3Fb%23c"), ("50%", "50%25"), ("...", "..."), (1.5, "1.5")],
)
def test_what_means_something_in_a_path_is_encoded(value: object, segment: str) -> None:
    assert target({"id": value}, path="/items/{id}") == f"/v1/items/{segment}"


@pytest.mark.parametrize("value", UNFIT_FOR_A_PATH)
def test_dots_nothing_and_structures_are_refused_in_a_path(value: object) -> None:
    with pytest.raises(InvalidArguments):
        target({"id": value}, path="/items/{id}")


def test_an_argument_of_the_path_that_is_absent_is_refused() -> None:
    with pytest.raises(InvalidArguments):
        target({}, path="/items/{id}")


@pytest.mark.parametrize("value", ["a\r\nX-Forged: 1", "a\0", "ü", "a\nb"])
def test_a_header_holds_no_line_break_and_no_foreign_letter(value: str) -> None:
    with pytest.raises(InvalidArguments):
        target({"mode": value}, headers={"X-Mode": "{mode}"})


def test_arguments_that_no_url_can_hold_are_refused() -> None:
    for value in ("\ud800", "x" * 70_000):
        with pytest.raises(InvalidArguments):
            target({"q": value})


def test_traceparent_is_the_run_and_the_call_as_w3c_writes_them() -> None:
    context = some_context()
    assert context.toolcallId is not None
    headers = trace_headers(context)
    version, trace, span, flags = headers["traceparent"].split("-")
    assert (version, trace, flags) == ("00", context.root_plan_id.hex, "01")
    assert span == sha256(context.toolcallId.bytes).hexdigest()[:16]
    assert headers["tracestate"] == f"tracer={context.toolcallId}"
    assert trace_headers(replace(context, toolcallId=None)) == {}


async def test_the_trace_travels_with_the_request() -> None:
    request = await sent({})
    headers = trace_headers(some_context())
    assert {name: request.headers[name] for name in headers} == headers


async def test_no_idempotency_key_is_sent_where_it_was_not_asked_for() -> None:
    assert "idempotency-key" not in (await sent({}, method="POST")).headers


def _tool_of(parameters: dict[str, Any] = ANYTHING, attempts: int = 1, **settings: Any) -> object:
    config = RestConfig(base_url=BASE, **settings)
    return rest_tool(
        name="x", description="", parameters=parameters, config=config, max_attempts=attempts
    )


def test_a_rest_tool_is_one_of_its_kind_and_has_a_timeout() -> None:
    config = RestConfig(base_url=BASE)
    tool = rest_tool(name="x", description="", parameters=ANYTHING, config=config, tags=["web"])
    assert (tool.tool_type, tool.timeout, tool.tags) == (ToolType.REST, DEFAULT_TIMEOUT, {"web"})


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_requests_that_may_arrive_twice_may_be_tried_again(method: str) -> None:
    assert _tool_of(attempts=3, method=method)


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_requests_that_must_not_arrive_twice_are_tried_again_with_a_key_only(method: str) -> None:
    assert _tool_of(attempts=3, method=method, idempotency_key=True)
    with pytest.raises(RegistrationError):
        _tool_of(attempts=2, method=method)


def test_places_and_arguments_have_to_match() -> None:
    declared = {"type": "object", "properties": {"a": {}, "b": {}}}
    assert _tool_of(declared, path="/{a}")
    assert _tool_of(declared, method="POST", path="/{a}", body={"b": "{b}"})
    with pytest.raises(RegistrationError, match="does not declare: c, d"):
        _tool_of(declared, path="/{c}", query={"d": "{d}"})
    with pytest.raises(RegistrationError, match="uses nowhere: b"):
        _tool_of(declared, method="POST", body={"a": "{a}"})


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": "ftp://x"},
        {"base_url": "https://user:hunter2@x"},
        {"base_url": "https://x?key=hunter2"},
        {"path": "/a/../b"},
        {"path": "/a//b"},
        {"path": "/a?b=hunter2"},
        {"path": "/{}"},
        {"path": "/{a!r}"},
        {"path": "/{a"},
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
        {"timeout": 3},
    ],
)
def test_a_configuration_that_cannot_work_is_refused_without_repeating_it(
    settings: dict[str, Any],
) -> None:
    with pytest.raises(ValidationError) as refused:
        RestConfig(**{"base_url": BASE, **settings})
    assert "hunter2" not in str(refused.value)


def test_a_configuration_reads_like_the_file_that_it_comes_from() -> None:
    config = RestConfig.model_validate(
        {
            "base_url": "https://api.example",
            "method": "post",
            "auth": {"type": "basic", "username": "u", "secret": "file:/run/secrets/x"},
            "response": {"first": "/items/0"},
            "allowed_hosts": ["inner.example:8080"],
        }
    )
    assert config.method == "POST"
    assert config.allowed_hosts == {"inner.example:8080"}
