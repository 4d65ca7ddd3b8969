"""The two ways to an MCP server: a process of ours, and streamable HTTP."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TextIO, cast

import anyio

from tracer.tools.executors.mcp.config import McpConfig, with_secrets
from tracer.tools.executors.secrets import read_secret

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

HTTP_SECONDS = 30.0
"""How long an HTTP server may take to accept a connection, or what we write."""

SILENT_SECONDS = 300.0
"""How long an HTTP server may be silent within an answer, unless calls may take longer."""

EVENT_BYTES = 1024 * 1024
"""How big one message over HTTP may be at least."""

SESSION_HEADER = "mcp-session-id"


@asynccontextmanager
async def transport(
    config: McpConfig, on_end: Callable[[], None], on_forgotten: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    """Reach a server while inside; a process is started, and ended with all that it started.

    Args:
        config: The server.
        on_end: Called when no more messages can come from it, such as when its process has died.
        on_forgotten: Called when an HTTP server no longer knows the session, as after a restart.

    Raises:
        ToolError: A secret is missing.
        OSError: The process cannot be started.
    """
    from mcp.shared.message import SessionMessage

    # The library tells nobody that a connection has ended: hence a stream of ours in between.
    send, receive = anyio.create_memory_object_stream[SessionMessage | Exception]()
    streams = _process(config) if config.url is None else _http(config, on_forgotten)
    with send, receive:
        async with streams as (incoming, outgoing), anyio.create_task_group() as group:

            async def pass_on() -> None:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    async with send:
                        async for message in incoming:
                            await send.send(message)
                on_end()

            group.start_soon(pass_on)
            yield receive, outgoing
            group.cancel_scope.cancel()


@asynccontextmanager
async def _process(config: McpConfig) -> AsyncIterator[TransportStreams]:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    assert config.command is not None
    parameters = StdioServerParameters(
        command=config.command, args=list(config.args), env=with_secrets(config.env)
    )
    # Not our standard error: a server's noise would mix with what this program prints.
    async with (
        await anyio.open_file(config.stderr or os.devnull, "a") as errors,
        stdio_client(parameters, errlog=cast(TextIO, errors.wrapped)) as streams,
    ):
        yield streams


@asynccontextmanager
async def _http(
    config: McpConfig, on_forgotten: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    assert config.url is not None
    headers = with_secrets(config.headers)
    if config.bearer is not None:
        headers["Authorization"] = f"Bearer {read_secret(config.bearer).get_secret_value()}"

    async def look_at(response: httpx2.Response) -> None:
        # The protocol's sign; what the answer says besides differs from server to server.
        if response.status_code == 404 and SESSION_HEADER in response.request.headers:
            on_forgotten()

    timeout = httpx2.Timeout(HTTP_SECONDS, read=max(SILENT_SECONDS, 2 * config.timeout))
    # Escapes make a result longer, and some servers send it twice: structured and as text.
    limit = max(EVENT_BYTES, 4 * config.max_result_bytes)
    async with (
        httpx2.AsyncClient(
            headers=headers, timeout=timeout, event_hooks={"response": [look_at]}
        ) as client,
        streamable_http_client(config.url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield streams
