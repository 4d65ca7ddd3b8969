"""Run a server. Refuse an address that other machines can reach while the server has no key."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from asyncio import Task
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.commands.first_key import first_key_notice
from api.http.proxies import VARIABLE, behind_proxies
from api.middleware.authentication import Access, is_loopback
from api.observability.metrics import Metrics
from api.otlp.grpc_server import GrpcAddress, grpc_serving
from tracer import assembly
from tracer.assembly import Parts
from tracer.errors import ConfigurationError
from tracer.records.ids import DEFAULT_PROJECT
from tracer.runtime.application import Application
from tracer.settings import Settings

DEFAULT_HOST = "127.0.0.1"
FREE_PORT = 0
DEFAULT_GRPC_PORT = 4317
"""The standard port of OTLP over gRPC."""
DRAIN_SECONDS = 5
"""How long requests in progress may take after the server was asked to stop."""


class _Server(uvicorn.Server):
    """A uvicorn server without signal handlers, because the `tracer` command handles signals."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Served:
    """A running server."""

    parts: Parts
    address: str
    serving: Task[None]
    """Ends when the server ends."""
    grpc_port: int | None = None
    """The port of OTLP over gRPC; None if the server does not serve gRPC."""


@asynccontextmanager
async def served(
    settings: Settings,
    application: Application | None,
    host: str = DEFAULT_HOST,
    port: int = FREE_PORT,
    migrated: bool = True,
    project: str = DEFAULT_PROJECT,
    first_key: bool = False,
    grpc: bool = False,
) -> AsyncIterator[Served]:
    """Run a server inside a `with` block.

    The application's tools can send requests to the server, too.

    Args:
        settings: The settings of the environment.
        application: The application; None to run no application. Its resources open in the
            background.
        host: The address to listen on.
        port: The port to listen on. With 0, the system selects a free port.
        migrated: Whether to bring the database schema up to date first.
        project: The project of the application's own runs.
        first_key: Whether to create and print a key if the server has never had one.
        grpc: Whether to serve OTLP over gRPC, too, unless the settings turn gRPC off. It listens
            on this machine only, unless the settings name another address.
    """
    with closing(_listen(host, port)) as listener:
        # A server that listens on all addresses is reached on this machine's loopback address.
        reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        shown = f"[{reached}]" if ":" in reached else reached
        address = f"http://{shown}:{listener.getsockname()[1]}"
        metrics = Metrics()
        async with (
            assembly.database(settings, migrated=migrated) as url,
            assembly.parts(
                settings, url, application, address, project, metrics.note_commit
            ) as parts,
        ):
            if first_key:
                await _make_first_key(parts, project)
            await _check_address(parts, host)
            address_of_grpc = _address_of_grpc(settings) if grpc else None
            if address_of_grpc is not None:
                await _check_address(parts, address_of_grpc.host)
            async with _serving(settings, parts, listener, metrics, address_of_grpc) as serving:
                yield Served(parts, address, *serving)


async def _make_first_key(parts: Parts, project: str) -> None:
    """If the server has never had a key, create an admin key, and print it with a notice."""
    assert parts.stores is not None
    closed = await parts.stores.closed_by_first_key(project)
    new = await parts.stores.make_first_key(parts.project_id)
    if new is not None:
        # All on one stream, because a container's log would mix the lines of two.
        print(
            *([] if closed is None else [first_key_notice(closed)]),
            f"The first key, with all scopes in the project {new.key.project!r}:",
            new.secret,
            "The key is shown only once. Sign in with it, or set it as TRACER_API_KEY.",
            sep="\n",
            flush=True,
        )


async def _check_address(parts: Parts, host: str) -> None:
    """Reject an address that other machines can reach while the server needs no key.

    Raises:
        ConfigurationError: Other machines can reach the address, and the server needs no key.
    """
    assert parts.authenticator is not None
    if not is_loopback(host) and not await parts.authenticator.are_keys_needed():
        raise ConfigurationError(
            f"Cannot listen on {host}: other machines could use the server, which has no key yet. "
            "Create a key with `tracer keys create NAME --scope admin`, pass --first-key, or "
            f"listen on {DEFAULT_HOST}."
        )


@asynccontextmanager
async def _serving(
    settings: Settings,
    parts: Parts,
    listener: socket.socket,
    metrics: Metrics,
    address_of_grpc: GrpcAddress | None,
) -> AsyncIterator[tuple[Task[None], int | None]]:
    """Run a server inside a `with` block. Yield its task, and its gRPC port (None without gRPC)."""
    hosts = None if settings.hosts is None else frozenset(_hosts(settings.hosts))
    access = Access(parts.authenticator, hosts)
    app = create_app(parts, access=access, metrics=metrics)
    config = uvicorn.Config(
        behind_proxies(app, os.environ.get(VARIABLE, "")),
        proxy_headers=False,  # `behind_proxies` is stricter
        log_config=None,
        access_log=False,  # `RequestLog` writes one without paths
        # A browser's open connections must not delay the shutdown.
        timeout_graceful_shutdown=DRAIN_SECONDS,
        server_header=False,
    )
    # Exempt the objects that exist by now from garbage collection: traversing them takes as long as
    # reading a tree. Large trees are not garbage either, so collect less often.
    gc.freeze()
    gc.set_threshold(50_000)
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    # Do not wait for a server that failed before it listens; `serving` raises the reason.
    serving.add_done_callback(lambda _: server.listens.set())
    try:
        await server.listens.wait()
        async with _grpc_serving(app, address_of_grpc) as grpc_port:
            yield serving, grpc_port
    finally:
        parts.end_watching()
        server.should_exit = True
        await serving


def _address_of_grpc(settings: Settings) -> GrpcAddress | None:
    port = DEFAULT_GRPC_PORT if settings.grpc_port is None else settings.grpc_port
    if port == 0:
        return None
    is_required = settings.grpc_port is not None
    files = settings.grpc_certificate, settings.grpc_key
    return GrpcAddress(settings.grpc_host, port, is_required, *files)


@asynccontextmanager
async def _grpc_serving(app: FastAPI, address: GrpcAddress | None) -> AsyncIterator[int | None]:
    if address is None:
        yield None
        return
    async with grpc_serving(app, address) as port:
        yield port


def _hosts(listed: str) -> Iterator[str]:
    """Yield the host names in a comma-separated list, without ports and in lower case."""
    for each in listed.split(","):
        if each.strip():
            yield urlsplit(f"//{each.strip()}").hostname or ""


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio recognises TCP and disables Nagle's algorithm. Otherwise a
    # short response would wait 40 ms for the acknowledgement of its headers.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"Cannot listen on {host} port {port}: {error.strerror}. "
            "Choose another address with --host or another port with --port; 0 selects a free port."
        ) from error
    return listener
