"""The Postgres store: the only code with SQL.

A `Pool` has the connections of a process, and a `ProjectPool` limits them to one project by
row-level security. `PostgresWriter` implements `TraceWriter`. `RunWatch` tells readers which runs
changed, from the `notifications` between processes.

Public modules:

- `reader`: `TraceReader` over a `ProjectPool`; it loads Alembic to check the schema
- `project_stores`: writers, readers and session states, for each project of a server
- `projection`, `projector`, `processes`: waiting for projections, projecting, and projectors
- `linker`: links between runs
- `search_source`: runs and texts for the search index
- `jobs`, `rollups`: work that a server repeats
- `projects`, `keys`, `analysts`, `deletion`: administration
- `migrate`: the schema's versions
"""

from tracer.storage.postgres.event_rows import EventPricing
from tracer.storage.postgres.pool import Pool, connection_options, open_pool, sync_connection
from tracer.storage.postgres.session import ProjectPool
from tracer.storage.postgres.tables import METADATA
from tracer.storage.postgres.watch import Notify, RunWatch, notifications
from tracer.storage.postgres.writer import OnCommit, PostgresWriter, WriterOptions, postgres_writer

__all__ = [
    "METADATA",
    "EventPricing",
    "Notify",
    "OnCommit",
    "Pool",
    "PostgresWriter",
    "ProjectPool",
    "RunWatch",
    "WriterOptions",
    "connection_options",
    "notifications",
    "open_pool",
    "postgres_writer",
    "sync_connection",
]
