"""A call of an MCP tool while OpenTelemetry is set up.

It needs its own process: OpenTelemetry can be set up only once in a process.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from opentelemetry import trace

from tracer.recorder import Recorder, Spool
from tracer.storage.memory import recording_in_memory
from tracer.tools import ToolRegistry, ToolService
from tracer.tools.mcp import McpConfig, McpServer


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


def call_while_traced(home: Path, config: McpConfig, answer: Connection) -> None:
    """Call a tool, and send the run's id, the call's id and the metadata that the server received.

    Args:
        home: A directory for the spool.
        config: The server.
        answer: Receives the values by name.
    """
    trace.set_tracer_provider(Provider())
    answer.send(asyncio.run(_call(home, config)))


async def _call(home: Path, config: McpConfig) -> dict[str, str]:
    registry = ToolRegistry(servers=[McpServer(config)])
    async with (
        Recorder(recording_in_memory(), Spool(home / "spool.db")) as recorder,
        ToolService(registry, recorder) as tools,
    ):
        outcome = await tools.call("echo_meta")
    ids = {"run": outcome.root_plan_id.hex, "call": str(outcome.tool_call_id)}
    return {**json.loads(outcome.result or ""), **ids}
