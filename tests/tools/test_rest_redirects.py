"""Redirects that REST tools follow or refuse."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.tools.http_servers import Answer, Received, http_server, reply
from tests.tools.rest_calls import api
from tracer.errors import AddressRefused, ToolError
from tracer.tools.http_clients import MAX_CONNECTIONS
from tracer.tools.rest import MAX_REDIRECTS

METADATA = "http://169.254.169.254/latest/meta-data/"


def redirecting(location: str, status: int = 302) -> Answer:
    """Answer with a redirect, and say "arrived" where it leads on this server."""

    def answer(request: Received) -> bytes:
        if request.path == "/there":
            return reply(body="arrived")
        return reply(status, location=location)

    return answer


async def test_redirect_to_an_inner_address_is_refused() -> None:
    locations = [
        METADATA,
        "//169.254.169.254/",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://[::ffff:169.254.169.254]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:a9fe:a9fe::]/",
        "http://[fd00:ec2::254]/",
        "http://localhost:1/",
        "http://127.0.0.1:1/",
        "http://user@127.0.0.1:1/",
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "javascript:alert(1)",
    ]
    asked: list[str] = []
    async with api(lambda _: reply(307, location=asked[-1])) as inner:
        for location, method in product(locations, ("GET", "POST")):
            asked.append(location)
            with pytest.raises(AddressRefused):
                await inner.call(method=method)
            assert len(inner.server.received) == len(asked), f"{method} {location} was followed"


async def test_every_address_of_a_redirect_target_is_checked() -> None:
    async def look_up(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host == "127.0.0.1" else ["93.184.216.34", "10.0.0.1"]

    async with api(redirecting("http://mixed.example/"), look_up) as inner:
        with pytest.raises(AddressRefused):
            await inner.call()


async def test_relative_redirect_stays_on_the_server() -> None:
    locations = ["/there", "there", "?x=1"]

    def answer(request: Received) -> bytes:
        if request.path == "/there" or request.query:
            return reply(body="arrived")
        return reply(302, location=locations.pop())

    async with api(answer) as inner:
        while locations:
            assert await inner.call(path="/here") == "arrived"


async def test_redirected_request_changes_as_in_browsers() -> None:
    expected = [
        # status, method, method of the redirected request, whether it keeps the body
        (301, "POST", "GET", False),
        (302, "POST", "GET", False),
        (303, "POST", "GET", False),
        (303, "PUT", "GET", False),
        (301, "PUT", "PUT", True),
        (302, "PATCH", "PATCH", True),
        (307, "POST", "POST", True),
        (308, "POST", "POST", True),
        (303, "HEAD", "HEAD", False),
        (302, "DELETE", "DELETE", False),
    ]
    failures = []
    for status, method, then, keeps_body in expected:
        async with api(redirecting("/there", status)) as inner:
            await inner.call({"a": 1}, method=method, idempotency_key=True)
            first, second = inner.server.received
        keeps_key = {"idempotency-key" in second.headers} if method == "POST" else {keeps_body}
        got = (first.method, second.method, second.body, "content-type" in second.headers)
        wanted = (method, then, first.body if keeps_body else b"", keeps_body)
        if got != wanted or keeps_key != {keeps_body}:
            failures.append(f"{status} {method}: expected {wanted}, got {got}, key {keeps_key}")

    assert failures == []


async def test_more_than_five_redirects_are_a_failure() -> None:
    def counting(limit: int) -> Callable[[Received], bytes]:
        def answer(request: Received) -> bytes:
            number = int(request.path.strip("/") or 0)
            if number == limit:
                return reply(body="arrived")
            return reply(302, location=f"/{number + 1}")

        return answer

    async with api(counting(MAX_REDIRECTS)) as inner:
        assert await inner.call() == "arrived"
    async with api(counting(MAX_REDIRECTS + 1)) as inner:
        with pytest.raises(ToolError, match="more than 5 times"):
            await inner.call()


async def test_each_redirect_returns_its_connection_to_the_pool() -> None:
    async with api(redirecting("/again")) as inner:
        for _ in range(1 + MAX_CONNECTIONS // MAX_REDIRECTS):
            with pytest.raises(ToolError, match="more than 5 times"):
                await inner.call()


async def test_redirect_to_an_invalid_address_is_a_failure() -> None:
    for location in ("http://[", "http://host:port/", "http://a\x01b/"):
        async with api(redirecting(location)) as inner:
            with pytest.raises(ToolError):
                await inner.call()


async def test_redirect_without_a_location_is_a_failure() -> None:
    async with api(lambda _: reply(302)) as inner:
        with pytest.raises(ToolError, match="302 Found"):
            await inner.call()


@pytest.mark.parametrize("status", [302, 307])
async def test_credentials_and_trace_are_sent_only_to_the_origin(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "a secret of ours")
    settings: dict[str, Any] = {
        "auth": {"type": "header", "name": "X-Api-Key", "secret": "env:API_TOKEN"},
        "headers": {"X-Tenant": "ours"},
    }
    ours = {"x-api-key", "x-tenant", "traceparent", "tracestate"}
    async with http_server(lambda _: reply(body="arrived")) as other:
        async with api(redirecting(f"{other.url}/there", status)) as inner:
            hosts = {inner.server.host, other.host}
            assert await inner.call(allowed_hosts=hosts, method="POST", **settings) == "arrived"
            assert ours <= inner.server.received[0].headers.keys()
        assert not ours & other.received[0].headers.keys()
        assert other.received[0].headers["host"] == other.host
    async with api(redirecting("/there", status)) as inner:
        await inner.call(method="POST", **settings)
        assert ours <= inner.server.received[1].headers.keys()
