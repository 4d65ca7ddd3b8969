"""The path of the spool, and the choice of the model for an application."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.main import server_parts
from health.agents import health_application
from health.diary import Diary
from tests.runtime.chat_server import ChatServer, serving
from tracer.context import identity
from tracer.errors import ConfigurationError
from tracer.recorder import Recorder, Spool
from tracer.recorder.spool import spool_path
from tracer.runtime import Agent, Application, RunLauncher
from tracer.runtime.scripted_model import Script, ScriptedModel, Turn
from tracer.settings import read_settings
from tracer.storage.memory import recording_in_memory

HOME = Path("home")
URL = "postgresql://tracer:old@db:5432/traces"


def test_spool_path_does_not_depend_on_the_credentials() -> None:
    urls = (
        "postgresql://tracer:new@db:5432/traces",
        "postgresql://other:a%40b@db:5432/traces",
        "postgresql://db:5432/traces",
    )
    assert [url for url in urls if spool_path(HOME, url) != spool_path(HOME, URL)] == []


def test_each_database_has_its_own_spool_path() -> None:
    urls = (
        "postgresql://tracer:old@db:5432/other",
        "postgresql://tracer:old@elsewhere:5432/traces",
        "postgresql://tracer:old@db:5433/traces",
        "postgresql://tracer@/traces?host=/run/one",
        "http://db:8420",
    )
    assert [url for url in urls if spool_path(HOME, url) == spool_path(HOME, URL)] == []


# --- The model ---------------------------------------------------------------------------------


def answering(text: str) -> ScriptedModel:
    return ScriptedModel([Script([Turn(text)], times=None)])


def application(**models: Any) -> Application:
    return Application(name="desk", agents=(Agent("worker", "Work."),), **models)


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    """A server of chat completions, whose address is in the environment."""
    with serving(ChatServer(answering("openai"))) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield server


async def answer(
    database_url: str, home: Path, application: Application, model: str | None
) -> str | None:
    """Return what an application answers if `TRACER_MODEL` is `model`."""
    async with server_parts(
        read_settings(home=home, model=model), database_url, application
    ) as made:
        return (await (await made.opened_launcher()).run("Who?", agent="worker")).summary


OPENAI = "openai:gpt-test"


async def test_model_of_the_application_overrides_the_environment_with_a_warning(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = application(model=answering("own"), fallback_model=answering("fallback"))
    assert await answer(database_url, tmp_path, own, None) == "own"
    assert "tracer_model_ignored" not in caplog.text
    assert await answer(database_url, tmp_path, own, OPENAI) == "own"
    assert "tracer_model_ignored" in caplog.text


@pytest.mark.parametrize("fallback", [None, answering("fallback")])
async def test_model_comes_from_the_environment_if_the_application_has_none(
    database_url: str, tmp_path: Path, openai: ChatServer, fallback: ScriptedModel | None
) -> None:
    unnamed = application(fallback_model=fallback)
    assert await answer(database_url, tmp_path, unnamed, OPENAI) == "openai"
    assert openai.requests[0]["model"] == "gpt-test"


async def test_demonstration_uses_the_model_of_the_environment(
    database_url: str, tmp_path: Path, openai: ChatServer
) -> None:
    diary = health_application(Diary())
    async with server_parts(
        read_settings(home=tmp_path, model=OPENAI), database_url, diary
    ) as made:
        with identity(token_id="user-p-1"):
            outcome = await (await made.opened_launcher()).run("Who?", agent="nurse")
    assert outcome.summary == "openai"


async def test_fallback_model_answers_if_no_model_is_named(
    database_url: str, tmp_path: Path
) -> None:
    unnamed = application(fallback_model=answering("fallback"))
    assert await answer(database_url, tmp_path, unnamed, None) == "fallback"


async def test_application_without_any_model_is_a_configuration_error(
    database_url: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=r"'desk' has no model.*TRACER_MODEL"):
        await answer(database_url, tmp_path, application(), None)
    store = recording_in_memory()
    with pytest.raises(ConfigurationError, match="'desk' has no model"):
        RunLauncher(application(), Recorder(store, Spool(tmp_path / "spool.db")), store)
