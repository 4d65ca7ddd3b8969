"""HTTP connections of REST tools: TLS, reuse, cookies and proxies."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.tools.contexts import some_context
from tests.tools.http_servers import http_server, reply
from tests.tools.rest_calls import api
from tracer.errors import AddressRefused, ConfigurationError, ToolUnavailable
from tracer.tools.http_clients import HttpClients, http_of
from tracer.tools.rest import RestConfig, call_rest


async def _loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def _certified(host: str, directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server that proves to be `host`, and of who believes it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2020, 1, 1, tzinfo=UTC) + timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    both = directory / "certificate.pem"
    both.write_bytes(
        pem
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(both)
    return served, ssl.create_default_context(cadata=pem.decode())


async def test_tls_and_host_header_use_the_name_not_the_address(tmp_path: Path) -> None:
    served, believed = _certified("inner.example", tmp_path)
    asked_for: list[str | None] = []
    served.sni_callback = lambda _socket, name, _context: asked_for.append(name)
    async with http_server(lambda _: reply(body="here"), tls=served) as server:
        http = HttpClients(resolve=_loopback, ssl_context=believed)
        for host, answer in [("inner.example", "here"), ("other.example", None)]:
            config = RestConfig(
                base_url=f"https://{host}:{server.port}", allowed_hosts=frozenset({host})
            )
            calling = call_rest(config, {}, some_context(), http.transport(config.allowed_hosts))
            if answer:
                assert await calling == answer
            else:
                with pytest.raises(ToolUnavailable):
                    await calling
        await http.aclose()
        assert asked_for == ["inner.example", "other.example"]
        assert [each.headers["host"] for each in server.received] == [
            f"inner.example:{server.port}"
        ]


async def test_untrusted_tls_certificate_is_rejected(tmp_path: Path) -> None:
    served, _ = _certified("inner.example", tmp_path)
    async with http_server(lambda _: reply(body="here"), tls=served) as server:
        host = f"inner.example:{server.port}"
        config = RestConfig(base_url=f"https://{host}", allowed_hosts=frozenset({host}))
        http = HttpClients(resolve=_loopback)
        with pytest.raises(ToolUnavailable):
            await call_rest(config, {}, some_context(), http.transport(config.allowed_hosts))
        await http.aclose()
        assert server.received == []


async def test_connection_opened_by_an_allow_list_is_not_reused_without_it() -> None:
    def keep_alive(_: object) -> bytes:
        return b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhere"

    async with api(keep_alive) as inner:
        assert await inner.call() == "here"
        with pytest.raises(AddressRefused):
            await inner.call(allowed_hosts=set())


async def test_cookies_of_one_call_are_not_sent_with_the_next() -> None:
    async with api(lambda _: reply(body="", set_cookie="session=of-somebody; Path=/")) as inner:
        await inner.call()
        await inner.call()
        assert ["cookie" in each.headers for each in inner.server.received] == [False, False]


async def test_proxies_and_passwords_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    async with api(lambda _: reply(body="here")) as inner:
        assert await inner.call() == "here"
        assert "authorization" not in inner.server.received[0].headers


async def test_url_scheme_other_than_http_and_https_is_rejected() -> None:
    http = HttpClients()
    for url in ("ftp://example.com/", "file:///etc/passwd", "ws://example.com/"):
        with pytest.raises(httpx2.UnsupportedProtocol):
            await http.transport().handle_async_request(httpx2.Request("GET", url))
    await http.aclose()


async def test_httpx2_client_works_with_the_guarded_transport() -> None:
    async with http_server(lambda _: reply(json={"a": 1})) as server:
        http = HttpClients()
        allowed = httpx2.AsyncClient(transport=http.transport([server.host]), trust_env=False)
        refused = httpx2.AsyncClient(transport=http.transport(), trust_env=False)
        assert (await allowed.get(server.url)).json() == {"a": 1}
        with pytest.raises(AddressRefused):
            await refused.get(server.url)
        with pytest.raises(httpx2.ConnectError):
            await allowed.get(server.url.replace("127.0.0.1", "nowhere.invalid"))
        await http.aclose()


async def test_closed_connection_pool_opens_no_connection() -> None:
    http = HttpClients()
    http.transport()
    await http.aclose()
    await http.aclose()
    with pytest.raises(ConfigurationError):
        http.transport()


def test_rest_call_outside_a_run_is_rejected() -> None:
    with pytest.raises(ConfigurationError):
        http_of(some_context())


async def test_many_calls_share_the_connections() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhere")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    config = RestConfig(base_url=f"http://{host}", allowed_hosts=frozenset({host}))
    http = HttpClients()
    for _ in range(5):
        assert (
            await call_rest(config, {}, some_context(), http.transport(config.allowed_hosts))
            == "here"
        )
    await http.aclose()
    server.close()
    await server.wait_closed()
    assert connections == 1
