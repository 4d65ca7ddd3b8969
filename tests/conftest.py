"""Fixtures that every test may use."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from inspect import iscoroutinefunction

import pytest

from tests.databases import (
    RUN_VARIABLE,
    SERVER_VARIABLE,
    create_template,
    drop_database,
    find_database,
    fresh_database,
    template_name,
)

# A process takes longer to start than most tests. Tests project in their own process
# (`tests.projecting`); tests of projectors ask for them.
os.environ.setdefault("TRACER_PROJECTORS", "0")

# Without it, each worker and each process that a test starts compiles all of our code, every time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest_plugins = ["tests.profiles", "tests.statements"]

os.environ.pop("CI", None)  # on CI, pytest prints a failed comparison of records whole: pages


def pytest_configure(config: pytest.Config) -> None:
    """Under pytest-xdist, start the server that the workers share before they start."""
    is_worker = hasattr(config, "workerinput")
    if is_worker or not config.getoption("numprocesses", None) or config.option.collectonly:
        return
    run = ExitStack()
    config.add_cleanup(run.close)
    url = run.enter_context(find_database().start())
    environment = run.enter_context(pytest.MonkeyPatch.context())
    environment.setenv(SERVER_VARIABLE, url)
    environment.setenv(RUN_VARIABLE, str(os.getpid()))
    run.callback(drop_database, url, template_name())


def pytest_itemcollected(item: pytest.Item) -> None:
    """Reject `st.data()` in async tests.

    A draw in the body of a test may raise Hypothesis' `StopTest`. This ends the task in which
    anyio executes all async tests, so every later test of the worker would fail.
    """
    inner = getattr(getattr(getattr(item, "obj", None), "hypothesis", None), "inner_test", None)
    if iscoroutinefunction(inner) and "DataObject" in str(inner.__annotations__):
        raise pytest.UsageError(f"{item.nodeid}: use strategies without st.data() in async tests.")


def pytest_report_header() -> str:
    return f"database: {find_database().description}"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _patience_with_stores() -> Iterator[None]:
    """Else a store that is slow, on a machine that is, had not yet what a test looks for in it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tracer.recorder.recorder.PATIENCE_SECONDS", 60.0)
        patched.setattr("tracer.storage.postgres.pool.ANSWER_SECONDS", 60.0)
        patched.setattr("tracer.storage.postgres.writer.WRITE_SECONDS", 600.0)
        yield


@pytest.fixture(scope="session")
def postgres_server_url() -> Iterator[str]:
    """The address of the server that holds this run's databases."""
    with find_database().start() as url:
        yield url


@pytest.fixture(scope="session")
def _template(postgres_server_url: str) -> Iterator[str]:
    name = create_template(postgres_server_url)
    yield name
    if RUN_VARIABLE not in os.environ:  # else other workers use it too
        drop_database(postgres_server_url, name)


@pytest.fixture
def database_url(postgres_server_url: str, _template: str) -> Iterator[str]:
    """A migrated database of the test's own."""
    with fresh_database(postgres_server_url, _template) as url:
        yield url


@pytest.fixture
def empty_database_url(postgres_server_url: str) -> Iterator[str]:
    """A database of the test's own with nothing in it."""
    with fresh_database(postgres_server_url) as url:
        yield url
