"""A real PgBouncer before a test's Postgres, which lends connections for a transaction each."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import errors
from psycopg.abc import ConnDict
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.databases import open_directory

ROOT = Path(__file__).parents[2]
CONNECTIONS = 4
"""Fewer than one server's pool has, so that who asks gets another one each time."""

PATIENCE = 60.0

ROLE = "tracer_test_pooler"
"""The role of the pooler, and its password."""


@contextmanager
def pgbouncer(database_url: str) -> Iterator[str]:
    """Give the address of `database_url` behind a pooler in transaction mode."""
    ensured = subprocess.run(
        [ROOT / "scripts" / "ensure_pgbouncer.sh"], check=False, capture_output=True, text=True
    )
    if ensured.returncode:  # only root can install it, and not everywhere
        pytest.skip(ensured.stderr.strip())
    program = ensured.stdout.split("\n")[-2]
    direct = _with_password(conninfo_to_dict(database_url))
    port = _free_port()
    with open_directory() as folder:
        names = {name: direct[name] for name in ("host", "port", "dbname") if name in direct}
        target = " ".join(f"{name}='{value}'" for name, value in names.items())
        users = folder / "users.txt"
        users.write_text(f'"{direct["user"]}" "{direct.get("password") or ""}"\n')
        settings = folder / "pgbouncer.ini"
        settings.write_text(
            f"""\
[databases]
{direct["dbname"]} = {target}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {CONNECTIONS}
max_client_conn = 200
logfile = {folder / "pgbouncer.log"}
"""
        )
        command = [program, str(settings)]
        if os.geteuid() == 0:  # which it refuses to run as
            user = _who_may_enter(str(direct.get("host", "")))
            for each in (folder, settings, users):
                shutil.chown(each, user)
            command[1:1] = ["-u", user]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_for(port, process)
            yield f"postgresql://{direct['user']}@127.0.0.1:{port}/{direct['dbname']}"
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _with_password(direct: ConnDict) -> ConnDict:
    """Return an address with a password: on a socket, the embedded Postgres knows users by name.

    PgBouncer runs as a user that the server does not know, so it connects as a role of its own.
    """
    if direct.get("password") or not str(direct.get("host", "")).startswith("/"):
        return direct
    with (
        psycopg.connect(make_conninfo("", **direct), autocommit=True) as connection,
        suppress(errors.DuplicateObject),
    ):
        connection.execute(f"CREATE ROLE {ROLE} SUPERUSER LOGIN PASSWORD '{ROLE}'")
    return direct | {"user": ROLE, "password": ROLE}


def _who_may_enter(host: str) -> str:
    """Return a user who reaches the server: the owner of its directory, where it is none of TCP."""
    return Path(host).owner() if host.startswith("/") else "nobody"


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    began = time.monotonic()
    while process.poll() is None and time.monotonic() - began < PATIENCE:
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("PgBouncer did not start")
