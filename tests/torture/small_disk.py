"""A disk of a few megabytes that a database lies on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.databases import open_directory, with_database
from tracer.storage.embedded import SERVICE_USER

DISK_BYTES = 48 * 2**20
NAME = "tracer_test_small_disk"


class SmallDisk:
    """A disk that can be filled, and emptied again of what filled it."""

    def __init__(self, path: Path) -> None:
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Leave no byte free."""
        with self._ballast.open("ab", buffering=0) as ballast:
            for size in (2**20, 2**12):
                try:
                    while ballast.write(bytes(size)):
                        pass
                except OSError:
                    continue

    def empty(self) -> None:
        """Take out what filled it."""
        self._ballast.unlink()


@contextmanager
def database_on_small_disk(server_url: str, template: str) -> Iterator[tuple[SmallDisk, str]]:
    """Give a disk and the address of a database on it. Skips the test where that can't be had."""
    with open_directory() as path, mounted(path, DISK_BYTES):
        tables = path / "tables"
        tables.mkdir()
        try:
            shutil.chown(tables, SERVICE_USER, SERVICE_USER)
        except LookupError as error:
            pytest.skip(f"the server is none of this machine: {error}")
        name = sql.Identifier(NAME)
        with psycopg.connect(server_url, autocommit=True) as connection:
            try:
                connection.execute(
                    sql.SQL("CREATE TABLESPACE {} LOCATION {}").format(name, str(tables))
                )
            except psycopg.Error as error:
                pytest.skip(f"the server has no access to this machine's disk: {error}")
            try:
                create = "CREATE DATABASE {} TEMPLATE {} TABLESPACE {}"
                connection.execute(sql.SQL(create).format(name, sql.Identifier(template), name))
                yield SmallDisk(path), with_database(server_url, NAME)
            finally:
                drop = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name)
                connection.execute(drop)
                connection.execute(sql.SQL("DROP TABLESPACE {}").format(name))


@contextmanager
def mounted(path: Path, disk_bytes: int) -> Iterator[None]:
    """Mount a disk of its own on a directory. Skips the test if that is not permitted."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={disk_bytes}", "tmpfs", str(path)]
    mounting = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounting.returncode:
        pytest.skip(f"no disk can be mounted here: {mounting.stderr.strip()}")
    try:
        path.chmod(0o711)
        yield
    finally:
        # Lazily: the server may hold files open for a while that it has deleted.
        subprocess.run(["umount", "--lazy", str(path)], check=True)
