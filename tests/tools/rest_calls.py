"""REST tools as the tests call them: against a server on loopback, which the allow-list names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.tools.contexts import some_context
from tests.tools.http_servers import Answer, HttpServer, http_server
from tracer.context import ToolContext
from tracer.tools import Tool, ToolOptions
from tracer.tools.http_clients import HttpClients, Resolve, resolve
from tracer.tools.parameters import JsonSchema
from tracer.tools.rest import RestConfig, rest_tool

ANYTHING: JsonSchema = {"type": "object"}


@dataclass(frozen=True)
class RunWithHttp:
    http: HttpClients


@dataclass(frozen=True)
class Api:
    """A server, and what tools need to call it."""

    server: HttpServer
    context: ToolContext

    def tool(self, options: ToolOptions | None = None, **settings: Any) -> Tool:
        settings.setdefault("base_url", self.server.url)
        settings.setdefault("allowed_hosts", {self.server.host})
        return rest_tool(
            name="call_api",
            description="Calls the API.",
            parameters=ANYTHING,
            config=RestConfig(**settings),
            **(options or {}),
        )

    async def call(self, arguments: dict[str, Any] | None = None, **settings: Any) -> Any:
        return await self.tool(**settings).run(arguments or {}, self.context)


@asynccontextmanager
async def api(answer: Answer, resolve: Resolve = resolve) -> AsyncIterator[Api]:
    async with http_server(answer) as server:
        http = HttpClients(resolve=resolve)
        try:
            yield Api(server, replace(some_context(), run=RunWithHttp(http)))
        finally:
            await http.aclose()
