"""The environment of the benchmarks: one Postgres, databases and servers."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median

import psutil
import psycopg

from benchmarks.http_load import get, send
from tests.databases import create_template, fresh_database, open_directory
from tests.servers import Server, start_server
from tracer.storage.embedded import start_embedded_postgres

SETTINGS = {
    # Measures statements and logs their plans on request; by default nothing is logged.
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
    "logging_collector": "on",
    "log_destination": "jsonlog",
}

PROJECTORS = {"TRACER_PROJECTORS": "2"}
"""By default there would be one on two cores."""

WARM_UP = 2
"""How many readings go before those that count."""

LIBRARIES = (
    "tracer-lineage",
    "psycopg",
    "fastapi",
    "uvicorn",
    "pydantic",
    "protobuf",
    "opentelemetry-sdk",
)


@dataclass
class Bench:
    """The environment of a part."""

    postgres: str
    """The server that all have in common."""
    template: str
    """A migrated database on it, to be copied."""
    folder: Path
    """For files: any user may enter it."""
    seed: int
    is_quick: bool
    """Whether to try things out, rather than to measure."""
    tool_calls: int
    """How many the large tables get."""
    say: Callable[[str], None]
    """Prints the progress."""
    before: str | None = None
    """A commit whose server is measured as well; None: no other."""
    versions: dict[str, str] = field(default_factory=dict)
    """The names and versions of the measured programs."""

    def sized(self, full: int, quick: int) -> int:
        """Return a size: the full one, or that for trying out."""
        return quick if self.is_quick else full

    @contextmanager
    def database(self) -> Iterator[str]:
        """Give the address of an empty database with our tables."""
        with fresh_database(self.postgres, self.template) as url:
            yield url

    @contextmanager
    def server(
        self,
        database_url: str,
        cwd: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Iterator[Server]:
        """Run `tracer serve` on a database, with two projectors.

        Args:
            database_url: The database.
            cwd: A checkout of the commit to run; None: this one.
            settings: More environment variables.
        """
        home = Path(tempfile.mkdtemp(prefix="server-", dir=self.folder))
        # The server's own processes ignore their directory, and would import this checkout.
        path = {} if cwd is None else {"PYTHONPATH": str(cwd)}
        server = start_server(
            database_url, home, cwd=cwd, settings={**PROJECTORS, **path, **(settings or {})}
        )
        try:
            yield server
        except Exception:
            self.say("the server's last words: " + (home / "server.log").read_text()[-2_000:])
            raise
        finally:
            server.process.terminate()
            server.process.wait(timeout=30)

    @contextmanager
    def server_before(self) -> Iterator[tuple[Server, str]]:
        """Run the server of the commit `before` on a database of its own; give both.

        It runs in this environment, from a Git worktree.

        Raises:
            subprocess.CalledProcessError: The commit does not exist.
        """
        with (
            self.checkout_before() as checkout,
            fresh_database(self.postgres) as url,
            self.server(url, checkout) as server,
        ):
            yield server, url

    @contextmanager
    def checkout_before(self) -> Iterator[Path]:
        """Check the commit `before` out into a Git worktree, and give its folder.

        Raises:
            subprocess.CalledProcessError: The commit does not exist.
        """
        assert self.before is not None
        checkout = Path(tempfile.mkdtemp(prefix="before-", dir=self.folder))
        _git("worktree", "add", "--detach", str(checkout), self.before)
        try:
            yield checkout
        finally:
            _git("worktree", "remove", "--force", str(checkout))

    def postgres_process(self) -> psutil.Process:
        """Return the Postgres server's first process."""
        with psycopg.connect(self.postgres) as connection:
            backend = psutil.Process(connection.info.backend_pid)
            postmaster = backend.parent()
        assert postmaster is not None
        return postmaster


@contextmanager
def surroundings(
    seed: int,
    is_quick: bool,
    tool_calls: int,
    say: Callable[[str], None],
    before: str | None = None,
) -> Iterator[Bench]:
    """Give the environment of the parts, and remove it afterwards; see `Bench`."""
    with open_directory() as folder, start_embedded_postgres(folder, SETTINGS) as postgres:
        template = create_template(postgres.url)
        with psycopg.connect(postgres.url) as connection:
            [server_version] = connection.execute("SHOW server_version").fetchone() or [""]
        versions = {"Python": platform.python_version(), "PostgreSQL": server_version}
        versions |= {library: version(library) for library in LIBRARIES}
        versions["commit"] = _commit()
        yield Bench(
            postgres.url, template, folder, seed, is_quick, tool_calls, say, before, versions
        )


def processor_seconds(process: psutil.Process) -> float:
    """Return how long a process has worked, with those that it started."""
    processes = [process, *process.children(recursive=True)]
    seconds = 0.0
    for each in processes:
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:  # then its parent's have it
            continue
        seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def milliseconds(address: str, path: str, times: int) -> list[float]:
    """Return how long each of several readings of `path` took, one after another."""
    sent = send(address, [[get(path)] * (WARM_UP + times)], 1, most_waits=0)
    return sent.latencies[WARM_UP:]


def p50_of(address: str, path: str, times: int) -> float:
    """Return the median of them."""
    return median(milliseconds(address, path, times))


def machine() -> dict[str, int | float | str]:
    """Return a description of the machine that does not identify it."""
    names = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    }
    return {
        "processor": ", ".join(sorted(names)) or platform.machine(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_before": round(os.getloadavg()[0], 1),
    }


def _commit() -> str:
    try:
        return _git("describe", "--always", "--dirty")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    here = Path(__file__).parent
    done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True)
    return done.stdout.strip()
