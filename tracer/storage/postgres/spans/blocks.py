"""Read the stored spans of a run. Also the SQL with which blocks are inserted."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import UUID

from tracer.otel.otlp.blocks import unpack_block
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


def values_of(block: PackedBlock, project_id: int, root_plan_id: UUID) -> dict[str, Any]:
    """Return the parameters of `INSERT_BLOCK`."""
    return {**asdict(block), "project_id": project_id, "run": root_plan_id}


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
    blocks = connection.execute(_BLOCKS, parameters, binary=True).fetchall()
    return [unpack_block(block) for (block,) in blocks]
