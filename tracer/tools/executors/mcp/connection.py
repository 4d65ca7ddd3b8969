"""One connection to an MCP server, over stdio or streamable HTTP, in a task of its own."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from importlib import import_module
from typing import TYPE_CHECKING, TextIO, cast

import anyio

from tracer.errors import ToolUnavailable, TracerError
from tracer.logs import get_logger
from tracer.tools.executors.mcp.config import McpConfig, with_secrets
from tracer.tools.executors.secrets import read_secret

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client import ClientSession
    from mcp.client.session import IncomingMessage
    from mcp_types import Tool as ListedTool
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


log = get_logger(__name__)

MAX_PAGES = 100
"""How many pages of tools are read: a server that always names a next one ends there."""

CLOSING_SECONDS = 10.0
"""How long a server may take to end before its connection is cut."""

LISTEN_AGAIN_SECONDS = 30.0
"""How long to wait before asking again to be told of changes."""


class McpConnection:
    """A connection to a server, from its making on: it opens and ends by itself, once.

    The library's contexts must be left by the task that entered them. That is this connection's own
    task; calls and closing come from any other of the same event loop.
    """

    def __init__(
        self, config: McpConfig, on_listed: Callable[[Sequence[ListedTool]], None]
    ) -> None:
        """Start to connect.

        Args:
            config: The server.
            on_listed: Receives all its tools: once it is connected, and whenever they change.
        """
        self._config = config
        self._on_listed = on_listed
        self._scope = anyio.CancelScope()
        self._changed = asyncio.Event()
        self._over = asyncio.Event()
        self._settled = asyncio.Event()
        self._session: ClientSession | None = None
        self.is_forgotten = False
        """Whether the server has said that it knows this connection no more, as after a restart."""
        self._failure = f"The connection to the MCP server {config.name!r} has been closed."
        # In a context of its own: what the first caller's holds, such as an identity, is not ours.
        self.task = asyncio.create_task(self._hold(), name=f"mcp-{config.name}", context=Context())

    @property
    def is_over(self) -> bool:
        """Whether calls need another one."""
        return self.is_forgotten or self._over.is_set()

    async def session(self) -> ClientSession:
        """Wait until it is connected and return the session.

        Raises:
            ToolUnavailable: It could not be connected.
        """
        await self._settled.wait()
        if self._session is None:
            raise ToolUnavailable(self._failure)
        return self._session

    def end(self) -> None:
        """Let it end: no more calls should be made. Does not wait for it."""
        self._over.set()
        if self._session is None:
            self._scope.cancel()

    async def close(self) -> None:
        """End it and wait until nothing is left of it, a server's process included."""
        self.end()
        _, late = await asyncio.wait({self.task}, timeout=CLOSING_SECONDS)
        if late:
            self._scope.cancel()
            await asyncio.wait(late)

    async def _hold(self) -> None:
        name = self._config.name
        self._scope.deadline = anyio.current_time() + self._config.connect_timeout
        try:
            with self._scope:
                await self._connect_and_wait()
            if anyio.current_time() >= self._scope.deadline:
                seconds = self._config.connect_timeout
                self._failure = f"The MCP server {name!r} did not answer within {seconds:g} s."
        except Exception as error:
            cause = _first_cause(error)
            if self._session is not None:
                log.warning("mcp_connection_lost", server=name, error=type(cause).__name__)
            elif isinstance(cause, TracerError):
                self._failure = str(cause)
            else:
                self._failure = f"The MCP server {name!r} can't be reached ({_told(cause)})."
        finally:
            self._over.set()
            self._settled.set()

    async def _connect_and_wait(self) -> None:
        # A second and more, the first time: other tasks should not stand still.
        await asyncio.to_thread(import_module, "mcp.client.streamable_http")
        from mcp import Client

        client = Client(
            transport(self._config, on_end=self._over.set, on_forgotten=self._forget),
            mode=self._config.protocol,
            cache=None,
            read_timeout_seconds=self._config.connect_timeout,
            message_handler=self._note,
        )
        async with client:
            self._on_listed(await _listed(client))
            self._scope.deadline = math.inf
            self._session = client.session
            self._settled.set()
            async with anyio.create_task_group() as group:
                group.start_soon(self._list_again, client)
                group.start_soon(self._listen, client)
                try:
                    await self._over.wait()
                finally:
                    # Calls need another one from now on; to leave this one may take seconds.
                    self._over.set()
                group.cancel_scope.cancel()

    def _forget(self) -> None:
        self.is_forgotten = True

    async def _note(self, message: IncomingMessage) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._changed.set()

    async def _list_again(self, client: Client) -> None:
        """List the tools again whenever they have changed; many changes at once count as one."""
        from mcp import MCPError

        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                self._on_listed(await _listed(client))
            except (MCPError, TracerError, ValueError) as error:
                name = self._config.name
                log.warning("mcp_tools_not_listed", server=name, error=type(error).__name__)

    async def _listen(self, client: Client) -> None:
        """Ask to be told of changes, as the protocol of 2026 has it; earlier servers just tell."""
        from mcp import MCPError
        from mcp.client.subscriptions import SubscriptionLost
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        tools = client.server_capabilities.tools
        tells = tools is not None and tools.list_changed
        while tells and client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            with suppress(MCPError, SubscriptionLost, TimeoutError):
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._changed.set()
            await anyio.sleep(LISTEN_AGAIN_SECONDS)
            # Nobody has told what changed meanwhile.
            self._changed.set()


async def _listed(client: Client) -> list[ListedTool]:
    listed: list[ListedTool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        listed += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return listed


def _first_cause(error: BaseException) -> BaseException:
    """Return what a group of errors is really about."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _told(error: BaseException) -> str:
    """Return an error in words that may be shown: others' texts may quote what was sent."""
    from mcp import MCPError

    kind = type(error).__name__
    return f"{kind}: {error.message[:200]}" if isinstance(error, MCPError) else kind
