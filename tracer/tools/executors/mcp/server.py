"""MCP tools: the tools of a Model Context Protocol server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pydantic import TypeAdapter, ValidationError

from tracer.context import ToolContext
from tracer.errors import InvalidResult, ToolError, ToolUnavailable
from tracer.logs import get_logger
from tracer.tasks import capped_deadline, seconds_left
from tracer.tools.definition.tool import Tool
from tracer.tools.executors.mcp.config import McpConfig
from tracer.tools.executors.mcp.connection import McpConnection
from tracer.tools.executors.mcp.results import ERROR_CHARACTERS, result_of
from tracer.tools.executors.mcp.tools import may_provide, mirrored
from tracer.tools.executors.trace_headers import call_as_span, trace_headers

if TYPE_CHECKING:
    from mcp import MCPError
    from mcp.client import ClientSession
    from mcp_types import CallToolResult, InputRequiredResult
    from mcp_types import Tool as ListedTool

__all__ = ["CALL_ID_KEY", "McpConfig", "McpServer"]

log = get_logger(__name__)

CALL_ID_KEY = "com.tracer/tool-call-id"
"""The key of our tool-call id in a call's `_meta`. The `mcp` library assigns the JSON-RPC ids."""

RETRY_SECONDS = 10.0

SLACK_SECONDS = 0.25
"""How many seconds after the deadline a call raises `TimeoutError`. Usually the caller enforces the
deadline before that: it cancels the call, and reports the timeout."""


class McpServer:
    """An MCP server. All calls share one connection, which is replaced when it is lost.

    Use it as an async context manager, or call `start` and `aclose`, from one event loop.
    """

    def __init__(
        self,
        config: McpConfig,
        on_tools_changed: Callable[[tuple[Tool, ...]], None] | None = None,
        *,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Describe a server, without connecting yet.

        Args:
            config: The server.
            on_tools_changed: Receives its tools whenever they are listed: after connecting, and
                when the server reports a change.
            retry_seconds: How long to wait between attempts to connect if the first one failed.
        """
        self.config = config
        self._retry_seconds = retry_seconds
        self._retry_task: asyncio.Task[None] | None = None
        self._on_tools_changed = on_tools_changed
        self._tools: tuple[Tool, ...] | None = None
        self._connection: McpConnection | None = None
        self._closing: set[McpConnection] = set()
        self._is_closed = False

    @property
    def name(self) -> str:
        """The server's name."""
        return self.config.name

    @property
    def mirrored(self) -> tuple[Tool, ...]:
        """The tools of the server's latest list; empty until the server has sent one."""
        return self._tools or ()

    def may_provide(self, name: str) -> bool:
        """Return whether the server's configuration allows a tool of this local name."""
        return may_provide(self.config, name)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Connect. If the server cannot be reached, log that; each call tries again.

        Calls need the list of tools. So a background task also tries to connect, until the server
        has listed its tools once.
        """
        self._is_closed = False
        try:
            await self._current().session()
        except ToolUnavailable as error:
            log.warning("mcp_server_unavailable", server=self.config.name, reason=str(error))
            if self._retry_task is None:
                # In an empty context, as the connection is.
                self._retry_task = asyncio.create_task(self._retry(), context=Context())

    async def aclose(self) -> None:
        """Close the connection, and end a server's process with its child processes."""
        self._is_closed = True
        if self._retry_task is not None:
            self._retry_task.cancel()
            self._retry_task = None
        if self._connection is not None:
            self._start_closing(self._connection)
            self._connection = None
        await asyncio.gather(*(connection.close() for connection in self._closing))

    async def tools(self) -> tuple[Tool, ...]:
        """Return the tools of the server's latest list; empty if the server was never reached."""
        if self._tools is None and not self._is_closed:
            await self.start()
        return self._tools or ()

    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Call a tool. Connect first if there is no connection.

        If this is cancelled or the deadline passes, the server is asked to stop.

        Args:
            name: The tool's name on the server.
            arguments: The arguments by parameter.
            context: The call's context. The server receives the call's id and trace context.

        Raises:
            ToolUnavailable: The server cannot be reached, or the connection ended.
            InvalidResult: The response violates the protocol.
            ToolError: The tool failed, or its result is too large.
            TimeoutError: There was no response in time.
        """
        deadline = capped_deadline(context.deadline, self.config.timeout)
        limit = (seconds_left(deadline) or 0) + SLACK_SECONDS
        meta = dict(trace_headers(context))
        if context.tool_call_id is not None:
            meta[CALL_ID_KEY] = str(context.tool_call_id)
        try:
            with call_as_span(context):
                async with asyncio.timeout(limit):
                    answer = await self._answer(name, arguments, meta, limit)
        except TimeoutError as error:
            raise TimeoutError(
                f"The MCP server {self.config.name!r} did not respond in time."
            ) from error
        return result_of(answer, self.config.max_result_bytes)

    async def _answer(
        self, name: str, arguments: dict[str, Any], meta: dict[str, Any], limit: float
    ) -> CallToolResult:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        connection = self._current()
        try:
            return await _send_call(await connection.session(), name, arguments, meta, limit)
        except MCPError as error:
            if not connection.is_session_lost or error.code == CONNECTION_CLOSED:
                raise self._tool_error(error) from error
        # The server rejected the unknown session without running the tool, so a retry is safe.
        try:
            return await _send_call(await self._current().session(), name, arguments, meta, limit)
        except MCPError as error:
            raise self._tool_error(error) from error

    async def _retry(self) -> None:
        while self._tools is None:
            await asyncio.sleep(self._retry_seconds)
            with suppress(ToolUnavailable):
                await self._current().session()
        self._retry_task = None

    def _current(self) -> McpConnection:
        """Return the connection for a call. If no connection works, create one.

        Raises:
            ToolUnavailable: The server is closed.
        """
        if self._is_closed:
            raise ToolUnavailable(f"The MCP server {self.config.name!r} is closed.")
        if self._connection is None or self._connection.is_over:
            if self._connection is not None:
                self._start_closing(self._connection)
            self._connection = McpConnection(self.config, self._update_tools)
        return self._connection

    def _start_closing(self, connection: McpConnection) -> None:
        connection.end()
        self._closing.add(connection)
        connection.task.add_done_callback(lambda _: self._closing.discard(connection))

    def _update_tools(self, listed: Sequence[ListedTool]) -> None:
        self._tools = mirrored(listed, self.config, self.call)
        if self._on_tools_changed is not None:
            self._on_tools_changed(self._tools)

    def _tool_error(self, error: MCPError) -> ToolError:
        from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR

        name = self.config.name
        message = error.message
        if message.startswith("SSE stream failed"):
            # Only this message failed: it was too large or violated the protocol.
            tool_error = ToolError(
                f"The response of the MCP server {name!r} cannot be read: {message}"
            )
        elif error.code == CONNECTION_CLOSED:
            tool_error = ToolUnavailable(
                f"The connection to the MCP server {name!r} was lost before the tool responded. "
                "It is unknown whether the tool did its work."
            )
        else:
            kind = ToolUnavailable if error.code == INTERNAL_ERROR else ToolError
            tool_error = kind(f"The MCP server {name!r} rejected the call: {message}")
        tool_error.max_characters = ERROR_CHARACTERS
        return tool_error


async def _send_call(
    session: ClientSession,
    name: str,
    arguments: dict[str, Any],
    meta: dict[str, Any],
    limit: float,
) -> CallToolResult:
    """Send a call and return the response.

    The library's `call_tool` is not used, because it also checks results against their schemas. Its
    errors quote the results, and matching a schema's pattern may take forever.
    """
    from mcp_types import CallToolRequest, CallToolRequestParams, InputRequiredResult

    params = CallToolRequestParams.model_validate(
        {"name": name, "arguments": arguments, "_meta": meta}
    )
    try:
        answer = await session.send_request(CallToolRequest(params=params), _response_type(), limit)
    except ValidationError as error:
        raise InvalidResult("The MCP server returned an invalid response.") from error
    if isinstance(answer, InputRequiredResult):
        raise ToolError("The tool asks a person for input, which is not supported.")
    return answer


@cache
def _response_type() -> TypeAdapter[CallToolResult | InputRequiredResult]:
    from mcp_types import CallToolResult, InputRequiredResult

    return TypeAdapter(CallToolResult | InputRequiredResult)
