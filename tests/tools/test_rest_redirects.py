from collections.abc import Callable
from typing import Any

import pytest

from tests.tools.http_servers import Answer, Received, http_server, reply
from tests.tools.rest_calls import api
from tracer.errors import AddressRefused, ToolError
from tracer.tools.executors.http_clients import MAX_CONNECTIONS
from tracer.tools.executors.rest import MAX_REDIRECTS

METADATA = "http://169.254.169.254/latest/meta-data/"


def redirecting(location: str, status: int = 302) -> Answer:
    """Answer with a redirect, and say "arrived" where it leads on this server."""

    def answer(request: Received) -> bytes:
        if request.path == "/there":
            return reply(body="arrived")
        return reply(status, location=location)

    return answer


@pytest.mark.parametrize(
    "location",
    [
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
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_redirect_to_an_inner_address_is_refused(location: str, method: str) -> None:
    async with api(redirecting(location, 307)) as inner:
        with pytest.raises(AddressRefused):
            await inner.call(method=method)
        assert len(inner.server.received) == 1


async def test_a_name_that_a_redirect_leads_to_is_judged_by_all_its_addresses() -> None:
    async def look_up(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host == "127.0.0.1" else ["93.184.216.34", "10.0.0.1"]

    async with api(redirecting("http://mixed.example/"), look_up) as inner:
        with pytest.raises(AddressRefused):
            await inner.call()


@pytest.mark.parametrize("location", ["/there", "there", "?x=1"])
async def test_a_relative_redirect_stays_on_the_server(location: str) -> None:
    def answer(request: Received) -> bytes:
        if request.path == "/there" or request.query:
            return reply(body="arrived")
        return reply(302, location=location)

    async with api(answer) as inner:
        assert await inner.call(path="/here") == "arrived"


@pytest.mark.parametrize(
    ("status", "method", "then", "keeps_body"),
    [
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
    ],
)
async def test_a_redirected_request_is_what_browsers_make_of_it(
    status: int, method: str, then: str, keeps_body: bool
) -> None:
    async with api(redirecting("/there", status)) as inner:
        await inner.call({"a": 1}, method=method, idempotency_key=True)
        first, second = inner.server.received
        assert (first.method, second.method) == (method, then)
        assert second.body == (first.body if keeps_body else b"")
        assert ("content-type" in second.headers) == keeps_body
        if method == "POST":
            assert ("idempotency-key" in second.headers) == keeps_body


async def test_redirects_end_after_five() -> None:
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


async def test_each_redirect_gives_its_connection_back() -> None:
    async with api(redirecting("/again")) as inner:
        for _ in range(1 + MAX_CONNECTIONS // MAX_REDIRECTS):
            with pytest.raises(ToolError, match="more than 5 times"):
                await inner.call()


@pytest.mark.parametrize("location", ["http://[", "http://host:port/", "http://a\x01b/"])
async def test_a_redirect_to_what_is_no_address_is_a_failure(location: str) -> None:
    async with api(redirecting(location)) as inner:
        with pytest.raises(ToolError):
            await inner.call()


async def test_a_redirect_without_a_location_is_a_failure() -> None:
    async with api(lambda _: reply(302)) as inner:
        with pytest.raises(ToolError, match="302 Found"):
            await inner.call()


@pytest.mark.parametrize("status", [302, 307])
async def test_credentials_and_the_trace_stay_with_the_origin(
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
