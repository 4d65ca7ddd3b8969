"""A Postgres of the test's own, which may be killed and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from tests.databases import open_directory
from tracer.storage.embedded import MAJOR_VERSION, start_embedded_postgres
from tracer.storage.postgres.migrate import upgrade


class PrivatePostgres:
    """An embedded server with a migrated database, set up as it is for users."""

    def __init__(self, home: Path, uses: ExitStack) -> None:
        self._home = home
        self._uses = uses
        self.url = self.start()

    def start(self) -> str:
        """Start it where it does not run, and return its address when it answers."""
        return self._uses.enter_context(start_embedded_postgres(self._home)).url

    def kill(self) -> None:
        """Kill the whole server, as a machine does that has no memory left for it."""
        kill_postgres(self._home)

    def kill_a_session(self) -> None:
        """Kill one of the processes that serve a connection: the server ends all others, too."""
        for process in postmaster_of(self._home).children():
            with suppress(psutil.NoSuchProcess):
                if "[local]" in " ".join(process.cmdline()):
                    process.kill()
                    return


def kill_postgres(home: Path) -> None:
    """Kill the embedded server whose data is under `home`."""
    postmaster = postmaster_of(home)
    # The postmaster first, which would start the others anew; then what is left of them, which
    # would keep a new one from starting.
    for process in [postmaster, *postmaster.children()]:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def postmaster_of(home: Path) -> psutil.Process:
    """Return the first process of a server."""
    pid_file = home / f"postgres-{MAJOR_VERSION}" / "data" / "postmaster.pid"
    return psutil.Process(int(pid_file.read_text().split()[0]))


@contextmanager
def private_postgres() -> Iterator[PrivatePostgres]:
    """Give a server, and stop it afterwards."""
    with open_directory() as home, ExitStack() as uses:
        server = PrivatePostgres(home, uses)
        upgrade(server.url)
        yield server
