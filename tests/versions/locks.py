"""The locks that each migration takes on tables that exist before it.

`python -m tests.versions.locks` writes `migrations/locks.json` for `tracer migrate --check`.
"""

from __future__ import annotations

import json

from alembic import command
from alembic.config import Config
from sqlalchemy import text

from tests.databases import find_database, fresh_database
from tests.house.project_files import ROOT
from tests.versions.dumps import restore, revisions
from tracer.storage.postgres.administration.migrate import drop_views, migrating_connection

FILE = ROOT / "migrations" / "locks.json"

MODES = (
    "ROW SHARE",
    "ROW EXCLUSIVE",
    "SHARE UPDATE EXCLUSIVE",
    "SHARE",
    "SHARE ROW EXCLUSIVE",
    "EXCLUSIVE",
    "ACCESS EXCLUSIVE",
)
"""Weakest first, without the lock of a reader."""

_TABLES = """
SELECT oid, relname FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
    AND relname <> 'alembic_version'"""
_HELD = "SELECT relation, mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation IS NOT NULL"


def measured(server_url: str, revision: str) -> dict[str, str]:
    """Return the strongest lock that a migration takes on each table."""
    order = revisions()
    before = order[order.index(revision) - 1]
    with fresh_database(server_url) as url:
        restore(before, url)
        with migrating_connection(url) as connection:
            drop_views(connection)  # as `upgrade` does
            connection.commit()
            tables = dict(tuple(row) for row in connection.execute(text(_TABLES)))
            config = Config()
            config.set_main_option("script_location", str(ROOT / "migrations"))
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
            held: dict[str, str] = {}
            for relation, mode in connection.execute(text(_HELD)):
                name = _name_of(mode)
                table = tables.get(relation)
                if table is not None and name in MODES:
                    held[table] = max(held.get(table, name), name, key=MODES.index)
            connection.rollback()
    return dict(sorted(held.items()))


def _name_of(mode: str) -> str:
    """Return the SQL name of a mode of `pg_locks`, such as `AccessExclusiveLock`."""
    words = "".join(f" {each}" if each.isupper() else each for each in mode.removesuffix("Lock"))
    return words.strip().upper()


def main() -> None:
    """Measure all migrations."""
    with find_database().start() as server:
        locks = {each: measured(server, each) for each in revisions()[1:]}
    FILE.write_text(json.dumps(locks, indent=2) + "\n")


if __name__ == "__main__":
    main()
