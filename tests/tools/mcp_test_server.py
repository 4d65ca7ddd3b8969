"""An MCP server that makes the mistakes that servers make: `mcp_test_server.py NOTES` over stdio.

It appends what happens to it to the file NOTES, line by line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import ToolsListChanged

Context = ServerRequestContext[dict[str, Any], Any]

ANYTHING: dict[str, Any] = {"type": "object"}
TEMPERATURE: dict[str, Any] = {
    "type": "object",
    "properties": {"celsius": {"type": "integer"}},
    "required": ["celsius"],
}
REMOTE: dict[str, Any] = {
    "type": "object",
    "properties": {"x": {"$ref": "http://127.0.0.1:9/schema.json"}},
}
WITH_TOKEN: dict[str, Any] = {
    "type": "object",
    "properties": {"asked": {"type": "string"}, "token_id": {"type": "string"}},
    "required": ["asked", "token_id"],
    "additionalProperties": False,
}

bus = InMemorySubscriptionBus()
tools: list[types.Tool] = [
    types.Tool(
        name="echo_meta",
        description="d" * 10_000,
        input_schema=ANYTHING,
        annotations=types.ToolAnnotations(read_only_hint=True),
    ),
    types.Tool(name="number", input_schema={**ANYTHING, "required": ["n"]}),
    types.Tool(
        name="fail", input_schema=ANYTHING, annotations=types.ToolAnnotations(idempotent_hint=True)
    ),
    types.Tool(name="refuse", input_schema=ANYTHING),
    types.Tool(name="slow", input_schema=ANYTHING),
    types.Tool(name="die", input_schema=ANYTHING),
    types.Tool(name="big", input_schema=ANYTHING),
    types.Tool(name="lines", input_schema=ANYTHING),
    types.Tool(name="blocks", input_schema=ANYTHING),
    types.Tool(name="environment", input_schema=ANYTHING),
    types.Tool(name="temperature", input_schema=ANYTHING, output_schema=TEMPERATURE),
    types.Tool(name="add_tool", input_schema=ANYTHING),
    types.Tool(name="odd.name/ü", input_schema=ANYTHING),
    types.Tool(name="odd/name.ü", input_schema=ANYTHING),
    types.Tool(name="whoami", input_schema=WITH_TOKEN),
    types.Tool(name="remote_ref", input_schema=REMOTE),
    types.Tool(name="remote_output_ref", input_schema=ANYTHING, output_schema=REMOTE),
]
PAGE = 4

notes: list[Path] = []
"""The file for notes, once the server starts."""


def note(line: str) -> None:
    with notes[-1].open("a") as file:
        file.write(f"{line}\n")


def text(said: str) -> types.TextContent:
    return types.TextContent(text=said)


async def list_tools(
    context: Context, params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    start = int(params.cursor) if params is not None and params.cursor else 0
    end = start + PAGE
    has_more = end < len(tools)
    return types.ListToolsResult(tools=tools[start:end], next_cursor=str(end) if has_more else None)


async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    note(f"call {params.name}")
    match params.name:
        case "echo_meta":
            meta: Any = context.meta or {}
            return types.CallToolResult(
                content=[text("not this")],
                structured_content=dict(meta),
                _meta={"secret": "of the server's"},
            )
        case "number":
            await asyncio.sleep(0.01 * (20 - arguments["n"]))
            return types.CallToolResult(content=[text(str(arguments["n"]))])
        case "fail":
            return types.CallToolResult(content=[text("There is no such city.")], is_error=True)
        case "refuse":
            raise ValueError("not on Sundays")
        case "slow":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                note("cancelled")
                raise
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "big":
            return types.CallToolResult(content=[text("ä" * arguments["characters"])])
        case "blocks":
            return types.CallToolResult(
                content=[
                    text("A picture:"),
                    types.ImageContent(data="AAAA", mime_type="image/png", _meta={"x": 1}),
                ]
            )
        case "environment":
            names = arguments["names"]
            headers = context.request.headers if context.request is not None else {}
            found = {name: os.environ.get(name) or headers.get(name) for name in names}
            return types.CallToolResult(content=[], structured_content=found)
        case "temperature":
            return types.CallToolResult(content=[], structured_content=arguments)
        case "add_tool":
            name = arguments["name"]
            tools.append(types.Tool(name=name, input_schema=ANYTHING))
            await context.session.send_tool_list_changed()
            await bus.publish(ToolsListChanged())
            return types.CallToolResult(content=[])
        case "whoami":
            return types.CallToolResult(content=[], structured_content=arguments)
        case "lines":
            return types.CallToolResult(content=[text("one"), text("two")])
    raise ValueError(f"no such tool: {params.name}")


server = Server(
    "tests",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_subscriptions_listen=ListenHandler(bus),
)


async def _over_stdio() -> None:
    sys.stderr.write("noise\n")
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _over_http(port: int) -> None:
    listening = socket.create_server(("127.0.0.1", port))
    note(f"port {listening.getsockname()[1]}")
    app = server.streamable_http_app()
    await uvicorn.Server(uvicorn.Config(app, log_level="error")).serve([listening])


def serve_http(path: str, port: int) -> None:
    """Serve on loopback until the process is killed.

    Args:
        path: The file for notes. The server notes its process id and its port.
        port: The port; 0: any free port.
    """
    notes.append(Path(path))
    note(f"pid {os.getpid()}")
    asyncio.run(_over_http(port))


if __name__ == "__main__":
    notes.append(Path(sys.argv[1]))
    note(f"pid {os.getpid()}")
    asyncio.run(_over_stdio())
