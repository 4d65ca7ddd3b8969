"""Alembic runs this file. `tracer.storage.postgres.migrate` opens the connection."""

from alembic import context

from tracer.storage.postgres import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    compare_type=True,
    compare_server_default=True,
    # The caller's transaction holds the lock that keeps other servers out meanwhile.
    transactional_ddl=False,
)
context.run_migrations()
