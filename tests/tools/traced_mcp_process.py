"""A program that calls an MCP tool while OpenTelemetry is set up: `… FOLDER stdio|http`.

Prints the run's id and what the server was told, as JSON. A process of its own, since a program
sets up OpenTelemetry once and for all.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opentelemetry import trace

from tests.tools.mcp_servers import live_server
from tests.tools.service_bench import service
from tracer.tools.executors.mcp import McpServer


class Spans(trace.Tracer):
    """Begins a span below the current one, as an SDK does, and keeps none."""

    def start_span(self, name: str, context: Any = None, **_: Any) -> trace.Span:  # type: ignore[override]
        above = trace.get_current_span(context).get_span_context()
        return trace.NonRecordingSpan(
            trace.SpanContext(
                above.trace_id if above.is_valid else random.getrandbits(128),
                random.getrandbits(64),
                False,
                trace.TraceFlags(trace.TraceFlags.SAMPLED),
                above.trace_state,
            )
        )

    @contextmanager
    def start_as_current_span(  # type: ignore[override]
        self, name: str, context: Any = None, **_: Any
    ) -> Iterator[trace.Span]:
        with trace.use_span(self.start_span(name, context)) as span:
            yield span


class Provider(trace.TracerProvider):
    def get_tracer(self, *_: Any, **__: Any) -> trace.Tracer:
        return Spans()


async def main(home: Path, kind: str) -> None:
    trace.set_tracer_provider(Provider())
    async with live_server(home, kind) as live, service(home) as on:
        await on.tools.registry.add_server(McpServer(live.config())).start()
        outcome = await on.tools.call("echo_meta")
    told = {"run": outcome.root_plan_id.hex, "call": str(outcome.tool_call_id)}
    sys.stdout.write(json.dumps({**json.loads(outcome.result or ""), **told}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
