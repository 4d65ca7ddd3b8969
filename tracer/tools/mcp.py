"""MCP tools: the tools of an MCP server, whose process or connection is kept open."""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from functools import cache
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TextIO, cast

import anyio
from pydantic import (
    AnyHttpUrl,
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from tracer.concurrency import capped_deadline, seconds_left
from tracer.context import ToolContext
from tracer.errors import (
    InvalidArguments,
    InvalidResult,
    RegistrationError,
    ToolError,
    ToolUnavailable,
    TracerError,
)
from tracer.logs import get_logger
from tracer.records.results import result_text
from tracer.tools.definition import Tool, ToolType
from tracer.tools.http_clients import SecretReference, call_as_span, read_secret, trace_headers
from tracer.tools.parameters import (
    Arguments,
    JsonSchema,
    parameter_names,
    schema_check,
    without_absent,
)

if TYPE_CHECKING:
    from mcp import Client, MCPError
    from mcp.client import ClientSession
    from mcp.client._transport import TransportStreams
    from mcp.client.session import IncomingMessage
    from mcp_types import CallToolResult, ContentBlock, InputRequiredResult
    from mcp_types import Tool as ListedTool

# --- The configuration of an MCP server: its address, and limits on its tools.

_REFERENCE = re.compile(r"env:\w+|file:(?!//).+")
"""Matches a reference to a secret. A `file://` URL is not a reference."""

_HTTP_URL: TypeAdapter[AnyHttpUrl] = TypeAdapter(AnyHttpUrl)


class McpConfig(BaseModel):
    """One MCP server: a command whose process is reached over stdio, or a URL (streamable HTTP).

    A value of `env` or `headers` may be a reference to a secret, such as `env:WEATHER_TOKEN`. The
    secret is read for each connection.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str = Field(min_length=1, max_length=64)
    """The server's name in logs and errors."""
    command: str | None = None
    """The program to start."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    """Environment variables, in addition to the few that the `mcp` library passes on."""
    stderr: Path | None = None
    """The file to which the process's standard error is appended. By default it is discarded."""
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    bearer: SecretReference | None = None
    """A reference to the bearer token for a server with a URL."""
    protocol: Literal["auto", "legacy"] = "auto"
    """`legacy` begins with the handshake of the protocol versions up to 2025. Use it for servers
    that fail if the client asks for a newer version first."""
    prefix: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]+$")
    """A prefix for the names of the server's tools, separated by `_`. By default, no prefix."""
    tools: frozenset[str] | None = None
    """The tools to use, by the names that the server gives them. By default, all tools."""
    tags: frozenset[str] = frozenset()
    """The tags of all its tools."""
    hidden: dict[str, Any] = Field(default_factory=dict)
    """Parameters of its tools that the runtime fills, by name: `{"token_id": TokenId}`, or in a
    file `{token_id = "token"}`. Each applies to every tool that has a parameter of that name."""
    timeout: PositiveFloat = 60.0
    """The timeout of a call in seconds."""
    connect_timeout: PositiveFloat = 30.0
    """How many seconds the server may take to start and to list its tools."""
    max_attempts: PositiveInt = 1
    """The largest number of attempts. Only tools declared idempotent or read-only are retried."""
    max_result_bytes: Annotated[int, Field(ge=1_000)] = 1_000_000
    """The largest size of a result, as UTF-8 text."""

    @model_validator(mode="after")
    def _has_one_transport(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server must have either a command or a url")
        if self.url is None and (self.headers or self.bearer):
            raise ValueError("headers and bearer are only valid with a url")
        if self.url is not None:
            _HTTP_URL.validate_python(self.url)
            if self.args or self.env or self.stderr:
                raise ValueError("args, env and stderr are only valid with a command")
        return self


def with_secrets(values: Mapping[str, str]) -> dict[str, str]:
    """Return values with references replaced by the secrets.

    Raises:
        ToolError: A secret is missing.
    """
    return {
        name: read_secret(value).get_secret_value() if _REFERENCE.fullmatch(value) else value
        for name, value in values.items()
    }


# --- Local tools, each of which calls a tool that an MCP server lists, and their results.

log = get_logger(__name__)

DESCRIPTION_CHARACTERS = 4_000
"""The longest description of a tool. The server chooses this text, and each request to a model
contains it."""

NAME_CHARACTERS = 64

REASON_CHARACTERS = 500
"""How much of an error is logged. It may quote the schema of a server that is not trusted."""

ERROR_CHARACTERS = 4_000
"""How much of a server's error message is used."""

CallByName = Callable[[str, dict[str, Any], ToolContext], Awaitable[Any]]
"""Calls a tool of the server. The first argument is the tool's name on the server."""


def mirrored(listed: Iterable[ListedTool], config: McpConfig, call: CallByName) -> tuple[Tool, ...]:
    """Return a local tool for each tool that a server lists, which calls the server's tool.

    A tool is skipped with a warning if its schema refers to another document, or if another tool
    has the same local name.

    Args:
        listed: The tools that the server lists.
        config: The server's configuration.
        call: Calls a tool of the server.
    """
    tools: dict[str, Tool] = {}
    for remote in listed:
        if config.tools is not None and remote.name not in config.tools:
            continue
        name = local_name(remote.name, config.prefix)
        if name in tools:
            _warn(config, remote, "Another tool of the server has the same local name.")
            continue
        try:
            tools[name] = _mirror(name, remote, config, call)
        except (ValueError, RegistrationError) as error:
            _warn(config, remote, error)
    return tuple(tools.values())


def local_name(name: str, prefix: str | None) -> str:
    """Return a local name for a server's tool, with only characters that model providers accept."""
    full = name if prefix is None else f"{prefix}_{name}"
    return re.sub(r"[^A-Za-z0-9_-]", "_", full)[:NAME_CHARACTERS]


def may_provide(config: McpConfig, name: str) -> bool:
    """Return whether a server of this configuration may have a tool of this local name."""
    if config.tools is not None:
        return name in {local_name(each, config.prefix) for each in config.tools}
    if not name or name != local_name(name, None):
        return False
    return config.prefix is None or name.startswith(local_name("", config.prefix))


def _mirror(name: str, remote: ListedTool, config: McpConfig, call: CallByName) -> Tool:
    parameters = remote.input_schema
    present = parameter_names(parameters)
    hidden = {each: kind for each, kind in config.hidden.items() if each in present}

    async def run(arguments: Arguments, context: ToolContext) -> Any:
        return await call(remote.name, without_absent(arguments, hidden), context)

    hints = remote.annotations
    may_repeat = hints is not None and bool(hints.idempotent_hint or hints.read_only_hint)
    return Tool(
        name=name,
        description=(remote.description or remote.title or "")[:DESCRIPTION_CHARACTERS],
        parameters=parameters,
        hidden=hidden,
        run=run,
        tool_type=ToolType.MCP,
        timeout=config.timeout,
        max_attempts=config.max_attempts if may_repeat else 1,
        tags=config.tags,
        check_result=result_check(remote.output_schema) if remote.output_schema else None,
    )


def _warn(config: McpConfig, remote: ListedTool, problem: object) -> None:
    tool = remote.name[:NAME_CHARACTERS]
    reason = str(problem)[:REASON_CHARACTERS]
    log.warning("mcp_tool_left_out", server=config.name, tool=tool, reason=reason)


def result_of(answer: CallToolResult, max_bytes: int) -> Any:
    """Return a tool's result.

    The result is the response's structured content. Without structured content, it is the text if
    all blocks are text, and otherwise all blocks as JSON. The response's `_meta` is not used.

    Args:
        answer: The server's response.
        max_bytes: The largest size of the result.

    Raises:
        ToolError: The tool failed, or the result is too large.
    """
    if answer.is_error:
        message = "\n".join(_texts(answer.content)) or "The tool failed without a message."
        error = ToolError(message)
        error.max_characters = ERROR_CHARACTERS
        raise error
    result = answer.structured_content
    if result is None:
        texts = _texts(answer.content)
        is_text = len(texts) == len(answer.content)
        result = "\n".join(texts) if is_text else [_as_json(block) for block in answer.content]
    size = len(result_text(result).encode(errors="surrogatepass"))
    if size > max_bytes:
        raise ToolError(
            f"The result has {size} bytes; at most {max_bytes} are accepted. Request less at once."
        )
    return result


def result_check(schema: JsonSchema) -> Callable[[Any], Any]:
    """Return a function that checks results against a tool's output schema.

    The function returns the result, or raises `InvalidResult` with a message that does not quote
    the result.

    Raises:
        ValueError: `schema` is not a JSON Schema, or refers to another document.
    """
    check_arguments = schema_check(schema)

    def check(result: Any) -> Any:
        try:
            return check_arguments(result)
        except InvalidArguments as error:
            raise InvalidResult(
                "The tool's result does not match the output schema that its server declares, "
                "so it was discarded."
            ) from error

    return check


def _texts(content: list[ContentBlock]) -> list[str]:
    return [block.text for block in content if block.type == "text"]


def _as_json(block: ContentBlock) -> dict[str, Any]:
    return block.model_dump(
        mode="json",
        by_alias=True,
        exclude_none=True,
        exclude={"meta": True, "resource": {"meta": True}},
    )


# --- MCP tools: the tools of a Model Context Protocol server, over stdio or streamable HTTP.

__all__ = ["CALL_ID_KEY", "McpConfig", "McpServer"]


CALL_ID_KEY = "com.tracer/tool-call-id"
"""The key of our tool-call id in a call's `_meta`. The `mcp` library assigns the JSON-RPC ids."""

RETRY_SECONDS = 10.0

SLACK_SECONDS = 0.25
"""How many seconds after the deadline a call raises `TimeoutError`. Usually the caller enforces the
deadline before that: it cancels the call, and reports the timeout."""

HTTP_SECONDS = 30.0
"""How many seconds an HTTP server may take to accept a connection or a request."""

SILENT_SECONDS = 300.0
"""How many seconds an HTTP server may send nothing within a response. If twice the timeout of a
call is longer, that is the limit."""

EVENT_BYTES = 1024 * 1024
"""The largest size of one message over HTTP. If four times the largest result is larger, that is
the limit."""

SESSION_HEADER = "mcp-session-id"

MAX_PAGES = 100
"""The largest number of pages of tools to read. A faulty server may always announce another."""

CLOSING_SECONDS = 10.0
"""How many seconds a server may take to end before its connection is cut."""

LISTEN_AGAIN_SECONDS = 30.0
"""How many seconds to wait before subscribing to changes again."""


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


@asynccontextmanager
async def transport(
    config: McpConfig, on_end: Callable[[], None], on_session_lost: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    """Connect to a server for the duration of the block.

    If the server is a command, start its process, and end it with its child processes.

    Args:
        config: The server.
        on_end: Called when no more messages can arrive, for example after its process has died.
        on_session_lost: Called when an HTTP server does not know the session any more, for example
            after a restart.

    Raises:
        ToolError: A secret is missing.
        OSError: The process cannot be started.
    """
    from mcp.shared.message import SessionMessage

    # The library does not report the end of a connection, so messages pass through this stream.
    send, receive = anyio.create_memory_object_stream[SessionMessage | Exception]()
    streams = _process(config) if config.url is None else _http(config, on_session_lost)
    with send, receive:
        async with streams as (incoming, outgoing), anyio.create_task_group() as group:

            async def forward() -> None:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    async with send:
                        async for message in incoming:
                            await send.send(message)
                on_end()

            group.start_soon(forward)
            yield receive, outgoing
            group.cancel_scope.cancel()


@asynccontextmanager
async def _process(config: McpConfig) -> AsyncIterator[TransportStreams]:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    assert config.command is not None
    parameters = StdioServerParameters(
        command=config.command, args=list(config.args), env=with_secrets(config.env)
    )
    # Not our standard error: the server's output would mix with this program's.
    async with (
        await anyio.open_file(config.stderr or os.devnull, "a") as errors,
        stdio_client(parameters, errlog=cast(TextIO, errors.wrapped)) as streams,
    ):
        yield streams


@asynccontextmanager
async def _http(
    config: McpConfig, on_session_lost: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    assert config.url is not None
    headers = with_secrets(config.headers)
    if config.bearer is not None:
        headers["Authorization"] = f"Bearer {read_secret(config.bearer).get_secret_value()}"

    async def check_session(response: httpx2.Response) -> None:
        # The protocol defines only the status; the body differs from server to server.
        if response.status_code == 404 and SESSION_HEADER in response.request.headers:
            on_session_lost()

    timeout = httpx2.Timeout(HTTP_SECONDS, read=max(SILENT_SECONDS, 2 * config.timeout))
    # JSON escapes make a message longer, and some servers send the result twice: structured and as
    # text.
    limit = max(EVENT_BYTES, 4 * config.max_result_bytes)
    async with (
        httpx2.AsyncClient(
            headers=headers, timeout=timeout, event_hooks={"response": [check_session]}
        ) as client,
        streamable_http_client(config.url, http_client=client, max_sse_event_size=limit) as streams,
    ):
        yield streams


class McpConnection:
    """A connection to a server. It opens when it is created, and cannot be opened again.

    The library's context managers must be entered and exited by the same task. So each connection
    has a task for this. Other tasks of the same event loop make the calls and close the connection.
    """

    def __init__(self, config: McpConfig, on_tools: Callable[[Sequence[ListedTool]], None]) -> None:
        """Start to connect.

        Args:
            config: The server.
            on_tools: Receives all tools of the server: when it is connected, and when they change.
        """
        self._config = config
        self._on_tools = on_tools
        self._scope = anyio.CancelScope()
        self._changed = asyncio.Event()
        self._over = asyncio.Event()
        self._settled = asyncio.Event()
        self._session: ClientSession | None = None
        self.is_session_lost = False
        """Whether the server does not know the session any more, as after a restart."""
        self._failure = f"The connection to the MCP server {config.name!r} is closed."
        # In an empty context, because the first caller's contains an identity.
        self.task = asyncio.create_task(self._hold(), name=f"mcp-{config.name}", context=Context())

    @property
    def is_over(self) -> bool:
        """Whether calls need a new connection."""
        return self.is_session_lost or self._over.is_set()

    async def session(self) -> ClientSession:
        """Wait for the connection and return the session.

        Raises:
            ToolUnavailable: The connection failed.
        """
        await self._settled.wait()
        if self._session is None:
            raise ToolUnavailable(self._failure)
        return self._session

    def end(self) -> None:
        """Start to close the connection, without waiting. The caller must make no more calls."""
        self._over.set()
        if self._session is None:
            self._scope.cancel()

    async def close(self) -> None:
        """Close the connection, and wait until it and the server's process have ended."""
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
                self._failure = (
                    f"The MCP server {name!r} cannot be reached ({_safe_message(cause)})."
                )
        finally:
            self._over.set()
            self._settled.set()

    async def _connect_and_wait(self) -> None:
        # In a thread: the first import takes more than a second, in which other tasks must run.
        await asyncio.to_thread(import_module, "mcp.client.streamable_http")
        from mcp import Client

        client = Client(
            transport(self._config, on_end=self._over.set, on_session_lost=self._lose_session),
            mode=self._config.protocol,
            cache=None,
            read_timeout_seconds=self._config.connect_timeout,
            message_handler=self._on_message,
        )
        async with client:
            self._on_tools(await _list_tools(client))
            self._scope.deadline = math.inf
            self._session = client.session
            self._settled.set()
            async with anyio.create_task_group() as group:
                group.start_soon(self._relist, client)
                group.start_soon(self._listen, client)
                try:
                    await self._over.wait()
                finally:
                    # Before the context is exited, which may take seconds: new calls must not use
                    # this connection.
                    self._over.set()
                group.cancel_scope.cancel()

    def _lose_session(self) -> None:
        self.is_session_lost = True

    async def _on_message(self, message: IncomingMessage) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._changed.set()

    async def _relist(self, client: Client) -> None:
        """List the tools whenever they have changed.

        If they change while they are being listed, they are listed once more.
        """
        from mcp import MCPError

        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                self._on_tools(await _list_tools(client))
            except (MCPError, TracerError, ValueError) as error:
                name = self._config.name
                log.warning("mcp_tools_not_listed", server=name, error=type(error).__name__)

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the tools. Protocol versions before 2026 need no subscription."""
        from mcp import MCPError
        from mcp.client.subscriptions import SubscriptionLost
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        tools = client.server_capabilities.tools
        is_notified = tools is not None and tools.list_changed
        while is_notified and client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            with suppress(MCPError, SubscriptionLost, TimeoutError):
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._changed.set()
            await anyio.sleep(LISTEN_AGAIN_SECONDS)
            # Changes in the meantime were not reported.
            self._changed.set()


async def _list_tools(client: Client) -> list[ListedTool]:
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
    """Return the first error of nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _safe_message(error: BaseException) -> str:
    """Return a message without secrets for an error.

    The message of a library's error may quote the request. So for errors other than `MCPError`,
    only the name of the class is returned.
    """
    from mcp import MCPError

    kind = type(error).__name__
    return f"{kind}: {error.message[:200]}" if isinstance(error, MCPError) else kind
