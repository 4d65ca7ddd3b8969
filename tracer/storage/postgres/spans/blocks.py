"""Read the stored spans of a run. Also the SQL with which spans are packed into blocks.

Spans are in `otel_block`. Spans that arrived before migration 0015 stay in `otel_span`, one per
row, until they are packed. Readers read both tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any
from uuid import UUID

from tracer.otel.otlp.blocks import unpack_block
from tracer.otel.otlp.protobuf import bytes_field
from tracer.otel.otlp.repacking import PackedBlock
from tracer.storage.postgres.connection.pool import SyncConnection

BLOCK_BYTES = 4_000_000
"""The largest uncompressed size of a block that combines others. A block with a single larger span
exceeds this size."""

RUN_LOCK_KEY = "hashtextextended(root_plan_id::text, project_id)"
"""The SQL of the key of a run's advisory lock, computed from the run's columns. A transaction that
projects a run or rewrites its blocks takes this lock first, and skips the run if the lock is held.
"""

CLAIM_RUN = f"""
SELECT pg_try_advisory_xact_lock({RUN_LOCK_KEY})
FROM (VALUES (%(run)s::uuid, %(project_id)s::integer)) AS run (root_plan_id, project_id)"""
"""Takes the advisory lock of a run until the end of the transaction, if it is free."""

LOCK_RUN = """
SELECT FROM run WHERE project_id = %(project_id)s AND root_plan_id = %(run)s
    AND deleted_at IS NULL
FOR NO KEY UPDATE"""
"""Locks the row of a run that is not deleted."""

INSERT_BLOCK = """
INSERT INTO otel_block (project_id, root_plan_id, key, spans, size, recorded_at, body)
VALUES (%(project_id)s, %(run)s, %(key)s, %(spans)s, %(size)s, %(recorded_at)s, %(body)s)
ON CONFLICT DO NOTHING"""

_BLOCKS = """
SELECT body FROM otel_block WHERE project_id = %(project_id)s AND root_plan_id = %(run)s
ORDER BY recorded_at, key"""

_SPAN_ROWS = """
SELECT body FROM otel_span WHERE project_id = %(project_id)s AND root_plan_id = %(run)s
ORDER BY span_id"""

_ROWS_IN_A_MESSAGE = 500
"""The most rows of `otel_span` in one message. It bounds how long decoding a message holds Python's
interpreter lock."""


def values_of(block: PackedBlock, project_id: int, root_plan_id: UUID) -> dict[str, Any]:
    """Return the parameters of `INSERT_BLOCK`."""
    return {**asdict(block), "project_id": project_id, "run": root_plan_id}


def span_message(bodies: Iterable[bytes]) -> bytes:
    """Combine the bodies of rows of `otel_span` into one `TracesData` message."""
    return b"".join(bytes_field(1, body) for body in bodies)


def messages_of(connection: SyncConnection, project_id: int, root_plan_id: UUID) -> list[bytes]:
    """Return the spans of a run as serialized `TracesData` messages.

    A span may occur several times, in different versions.

    Args:
        connection: In a transaction of the project whose statements see one snapshot.
        project_id: The project.
        root_plan_id: The run. A run without spans has no messages.

    Raises:
        UnreadableBlock: A block is damaged, or a newer version of the program wrote it.
    """
    parameters = {"project_id": project_id, "run": root_plan_id}
    blocks, rows = [
        [body for (body,) in connection.execute(query, parameters, binary=True).fetchall()]
        for query in (_BLOCKS, _SPAN_ROWS)
    ]
    messages = [unpack_block(block) for block in blocks]
    for begin in range(0, len(rows), _ROWS_IN_A_MESSAGE):
        messages.append(span_message(rows[begin : begin + _ROWS_IN_A_MESSAGE]))
    return messages
