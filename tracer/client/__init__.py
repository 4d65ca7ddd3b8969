"""Record by hand: a connection to a store, and `with` blocks that record what an agent does.

`tracer.connect()` returns a `Tracing`. Its methods open plans; steps, think-acts and tool calls are
opened by their parents. Blocks may be used from any thread and from any event loop. Recording never
raises an error of the store in the user's program.

Public modules:

- `work`: plans, steps, think-acts and tool calls, which adapters open and end themselves
"""

from tracer.client.connection import (
    Connection,
    OpenWriter,
    current_about,
    flush_connections,
    open_connections,
    suppress_instrumentation,
)
from tracer.client.tracing import DisabledTracing, Tracing

__all__ = [
    "Connection",
    "DisabledTracing",
    "OpenWriter",
    "Tracing",
    "current_about",
    "flush_connections",
    "open_connections",
    "suppress_instrumentation",
]
