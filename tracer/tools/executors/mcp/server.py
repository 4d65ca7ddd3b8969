"""MCP tools: the tools of a server that speaks the Model Context Protocol, as tools of ours."""

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
from tracer.tasks import earlier, seconds_left
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
"""Where a call's `_meta` has our id of it. The ids of JSON-RPC are the library's own."""

RETRY_SECONDS = 10.0

SLACK_SECONDS = 0.25
"""How much later than the deadline a call gives up by itself: whoever runs the tool with a deadline
cancels it first, and knows it for a timeout."""


class McpServer:
    """An MCP server: one connection that all calls share, made anew when it is gone.

    Use it as an async context manager, or call `start` and `aclose`, from one event loop.
    """

    def __init__(
        self,
        config: McpConfig,
        on_tools_changed: Callable[[tuple[Tool, ...]], None] | None = None,
        *,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """Describe a server; nothing is connected yet.

        Args:
            config: The server.
            on_tools_changed: Receives its tools whenever it has listed them: when connected, and
                when it says that they changed.
            retry_seconds: How long to wait before one that could not be reached at the start is
                tried again.
        """
        self.config = config
        self._retry_seconds = retry_seconds
        self._retrying: asyncio.Task[None] | None = None
        self._on_tools_changed = on_tools_changed
        self._tools: tuple[Tool, ...] | None = None
        self._connection: McpConnection | None = None
        self._ending: set[McpConnection] = set()
        self._is_closed = False

    @property
    def name(self) -> str:
        """The server's name."""
        return self.config.name

    @property
    def mirrored(self) -> tuple[Tool, ...]:
        """The tools as the server listed them last; none while it has not."""
        return self._tools or ()

    def may_provide(self, name: str) -> bool:
        """Return whether it could have a tool with this local name, as far as it is configured."""
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
        """Connect. A server that can't be reached is logged, and tried again by each call.

        And in between, while its tools are not known: nobody can call them.
        """
        self._is_closed = False
        try:
            await self._current().session()
        except ToolUnavailable as error:
            log.warning("mcp_server_unavailable", server=self.config.name, reason=str(error))
            if self._retrying is None:
                # In a context of its own, as the connection is.
                self._retrying = asyncio.create_task(self._retry(), context=Context())

    async def aclose(self) -> None:
        """End the connection, and a server's process with all that it started. Any task may."""
        self._is_closed = True
        if self._retrying is not None:
            self._retrying.cancel()
            self._retrying = None
        if self._connection is not None:
            self._let_end(self._connection)
            self._connection = None
        await asyncio.gather(*(connection.close() for connection in self._ending))

    async def tools(self) -> tuple[Tool, ...]:
        """Return the tools as the server listed them last; none while it can't be reached."""
        if self._tools is None and not self._is_closed:
            await self.start()
        return self._tools or ()

    async def call(self, name: str, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Call a tool, connecting first where there is no connection.

        When this is cancelled, or the deadline passes, the server is told to stop.

        Args:
            name: The server's name of the tool.
            arguments: What it is called with.
            context: The call's place. The server is told the call's id and trace.

        Raises:
            ToolUnavailable: The server can't be reached, or the connection ended.
            InvalidResult: The answer is not one of the protocol.
            ToolError: The tool failed, or its result is too big.
            TimeoutError: There was no answer in time.
        """
        deadline = earlier(context.deadline, self.config.timeout)
        limit = (seconds_left(deadline) or 0) + SLACK_SECONDS
        meta = dict(trace_headers(context))
        if context.toolcallId is not None:
            meta[CALL_ID_KEY] = str(context.toolcallId)
        try:
            with call_as_span(context):
                async with asyncio.timeout(limit):
                    answer = await self._answer(name, arguments, meta, limit)
        except TimeoutError as error:
            raise TimeoutError(
                f"The MCP server {self.config.name!r} did not answer in time."
            ) from error
        return result_of(answer, self.config.max_result_bytes)

    async def _answer(
        self, name: str, arguments: dict[str, Any], meta: dict[str, Any], limit: float
    ) -> CallToolResult:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        connection = self._current()
        try:
            return await _sent(await connection.session(), name, arguments, meta, limit)
        except MCPError as error:
            if not connection.is_forgotten or error.code == CONNECTION_CLOSED:
                raise self._refusal(error) from error
        # It knew nothing of us, so it has done nothing: once more is safe.
        try:
            return await _sent(await self._current().session(), name, arguments, meta, limit)
        except MCPError as error:
            raise self._refusal(error) from error

    async def _retry(self) -> None:
        while self._tools is None:
            await asyncio.sleep(self._retry_seconds)
            with suppress(ToolUnavailable):
                await self._current().session()
        self._retrying = None

    def _current(self) -> McpConnection:
        """Return the connection for a call: a new one where there is none that works.

        Raises:
            ToolUnavailable: The server has been closed.
        """
        if self._is_closed:
            raise ToolUnavailable(f"The MCP server {self.config.name!r} has been closed.")
        if self._connection is None or self._connection.is_over:
            if self._connection is not None:
                self._let_end(self._connection)
            self._connection = McpConnection(self.config, self._take)
        return self._connection

    def _let_end(self, connection: McpConnection) -> None:
        connection.end()
        self._ending.add(connection)
        connection.task.add_done_callback(lambda _: self._ending.discard(connection))

    def _take(self, listed: Sequence[ListedTool]) -> None:
        self._tools = mirrored(listed, self.config, self.call)
        if self._on_tools_changed is not None:
            self._on_tools_changed(self._tools)

    def _refusal(self, error: MCPError) -> ToolError:
        from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR

        name = self.config.name
        said = error.message
        if said.startswith("SSE stream failed"):
            # The connection goes on: this one message was too big, or none of the protocol.
            refusal = ToolError(f"The answer of the MCP server {name!r} can't be read: {said}")
        elif error.code == CONNECTION_CLOSED:
            refusal = ToolUnavailable(
                f"The connection to the MCP server {name!r} ended before the tool had answered: "
                "whether it did its work is not known."
            )
        else:
            kind = ToolUnavailable if error.code == INTERNAL_ERROR else ToolError
            refusal = kind(f"The MCP server {name!r} refused the call: {said}")
        refusal.max_characters = ERROR_CHARACTERS
        return refusal


async def _sent(
    session: ClientSession,
    name: str,
    arguments: dict[str, Any],
    meta: dict[str, Any],
    limit: float,
) -> CallToolResult:
    """Send a call and return the answer.

    Not by the library's `call_tool`, which holds results against their schemas too: its errors
    quote them, and its patterns can hang.
    """
    from mcp_types import CallToolRequest, CallToolRequestParams, InputRequiredResult

    params = CallToolRequestParams.model_validate(
        {"name": name, "arguments": arguments, "_meta": meta}
    )
    try:
        answer = await session.send_request(CallToolRequest(params=params), _answers(), limit)
    except ValidationError as error:
        raise InvalidResult("The MCP server's answer is none that the protocol knows.") from error
    if isinstance(answer, InputRequiredResult):
        raise ToolError("The tool asks a person for something, which is not possible here.")
    return answer


@cache
def _answers() -> TypeAdapter[CallToolResult | InputRequiredResult]:
    from mcp_types import CallToolResult, InputRequiredResult

    return TypeAdapter(CallToolResult | InputRequiredResult)
