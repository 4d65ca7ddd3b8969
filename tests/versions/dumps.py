"""Dumps of a database of release 0.1.0 with data, one per migration revision.

`python -m tests.versions.dumps` writes missing ones: it restores the newest dump, migrates to the
revision, and dumps. The dump of revision 0012 was made with release 0.1.0 itself.
"""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

import psycopg
from alembic.script import ScriptDirectory

from tests.databases import find_database, fresh_database
from tests.house.project_files import ROOT
from tracer.storage.embedded.postgres import installed_programs
from tracer.storage.postgres.administration.migrate import downgrade, upgrade

FOLDER = Path(__file__).parent / "dumps"
RELEASED = "0012"
"""The revision of release 0.1.0."""

_ROLES = """
DO $$ DECLARE name text; BEGIN
    FOREACH name IN ARRAY ARRAY['tracer_program', 'tracer_reader'] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN NOINHERIT', name);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END LOOP;
END $$"""
"""Roles belong to the server, not to a database."""


def revisions() -> list[str]:
    """Return all revisions, oldest first."""
    scripts = ScriptDirectory(str(ROOT / "migrations"))
    return [each.revision for each in scripts.walk_revisions()][::-1]


def dump_of(revision: str) -> Path:
    """Return the path of a revision's dump."""
    return FOLDER / f"{revision}.sql.gz"


def restore(revision: str, url: str) -> None:
    """Restore a dump into an empty database."""
    lines = gzip.decompress(dump_of(revision).read_bytes()).decode().splitlines(keepends=True)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_ROLES)
        connection.execute("DROP SCHEMA public")
        # Lines for psql only.
        connection.execute("".join(each for each in lines if not each.startswith("\\")).encode())


def dump(revision: str, url: str) -> None:
    """Write a database's dump."""
    options = ("--inserts", "--no-owner", "--no-privileges", "--no-comments")
    schemas = ("--schema=public", "--schema=trace")
    command = [str(installed_programs() / "pg_dump"), *options, *schemas, url]
    text = subprocess.run(command, capture_output=True, check=True).stdout
    dump_of(revision).write_bytes(gzip.compress(text, mtime=0))


def main() -> None:
    """Write the missing dumps."""
    order = revisions()
    with find_database().start() as server:
        for revision in order:
            if dump_of(revision).exists():
                continue
            older = [each for each in order if dump_of(each).exists() and each < revision]
            with fresh_database(server) as url:
                restore(older[-1] if older else RELEASED, url)
                (upgrade if older else downgrade)(url, revision)
                dump(revision, url)


if __name__ == "__main__":
    os.umask(0o022)
    main()
