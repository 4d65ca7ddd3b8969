"""A server behind the proxy of deploy/nginx.conf answers while strangers attack the proxy."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from tests.api.commands import serving_here

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx.conf"
NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
SECONDS = 60

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not Path(NGINX).exists(), reason="nginx is not installed"),
]


@contextmanager
def nginx(folder: Path, upstream: str) -> Iterator[int]:
    """Run nginx with the shown file, and give its port.

    Only addresses and files differ from the shown file.
    """
    subprocess.run(
        [
            *"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost".split(),
            *("-keyout", f"{folder}/tracer.key", "-out", f"{folder}/tracer.pem"),
        ],
        check=True,
        capture_output=True,
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = CONFIGURATION.read_text()
    folders = "".join(
        f"    {kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    for shown, used in {
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/nginx/": f"{folder}/",
        "http://127.0.0.1:8420": upstream,
        "http {\n": f"http {{\n    access_log off;\n{folders}",
    }.items():
        assert shown in text
        text = text.replace(shown, used)
    (folder / "nginx.conf").write_text(f"daemon off;\npid {folder}/nginx.pid;\n{text}")
    command = [NGINX, "-e", f"{folder}/error.log", "-p", str(folder), "-c", f"{folder}/nginx.conf"]
    with subprocess.Popen(command) as process:
        try:
            yield port
        finally:
            process.terminate()


@asynccontextmanager
async def connected(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def status_of(port: int, request: bytes) -> bytes:
    """Return the status of the answer to a request; b"" if the connection is closed."""
    async with asyncio.timeout(SECONDS), connected(port) as (reader, writer):
        with suppress(ConnectionError):
            writer.write(request)
            with suppress(TimeoutError):
                async with asyncio.timeout(SECONDS / 2):
                    await writer.drain()
            return (await reader.readline()).partition(b" ")[2][:3]
    return b""


async def until_answered(port: int) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            with suppress(ConnectionError, OSError):
                if await status_of(port, request("GET /healthz")) == b"200":
                    return
            await asyncio.sleep(0.05)


def request(line: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"{line} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


async def hold(port: int, held: asyncio.Event, beginning: bytes) -> None:
    """Send the beginning of a request, then a byte now and then, until the proxy gives up."""
    try:
        async with connected(port) as (_, writer):
            writer.write(beginning)
            await writer.drain()
            held.set()
            while True:
                await asyncio.sleep(1)
                writer.write(b"x")
                await writer.drain()
    except (OSError, ssl.SSLError):
        held.set()


@pytest.fixture
def port(database_url: str, tmp_path: Path) -> Iterator[int]:
    with serving_here(database_url, tmp_path / "home") as address:
        folder = tmp_path / "nginx"
        folder.mkdir()
        with nginx(folder, address) as port:
            yield port


async def test_huge_headers_are_rejected_by_the_proxy(port: int) -> None:
    await until_answered(port)
    huge = request("GET /healthz", "X-Huge: " + "x" * 16 * 2**20)
    many = request("GET /healthz", *(f"X-{number}: x" for number in range(20_000)))

    for attack in (huge, many):
        assert await status_of(port, attack) in (b"", b"400", b"414", b"431", b"494")
        assert await status_of(port, request("GET /healthz")) == b"200"


async def test_dripping_headers_and_stalled_uploads_do_not_delay_others(port: int) -> None:
    await until_answered(port)
    upload = request(
        "POST /v1/traces", "Content-Type: application/json", "Content-Length: 60000000"
    )
    events = [asyncio.Event() for _ in range(600)]
    attackers = [
        asyncio.create_task(
            hold(port, event, upload if number % 4 == 0 else b"GET / HTTP/1.1\r\nX-A: ")
        )
        for number, event in enumerate(events)
    ]
    try:
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*(each.wait() for each in events))
        async with httpx2.AsyncClient(verify=False, timeout=SECONDS, trust_env=False) as client:
            for _ in range(10):
                answer = await client.get(f"https://localhost:{port}/healthz")
                assert answer.status_code == 200
    finally:
        for each in attackers:
            each.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)
