"""Settings that are read from environment variables."""

import os
from pathlib import Path

import pytest

from tracer.errors import ConfigurationError
from tracer.settings import REMOVED, Settings, read_settings


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("TRACER_"):
            monkeypatch.delenv(name)


def test_default_settings_have_no_application_and_an_embedded_database() -> None:
    settings = read_settings()
    assert settings.database_url is None
    assert settings.model is None
    assert settings.app is None
    assert settings.home.is_absolute()


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.setenv(f"TRACER_{name.upper()}", "")
    assert read_settings() == Settings()


def test_default_data_folder_of_root_is_accessible_to_the_database_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert read_settings().home == Path("/var/lib/tracer")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert read_settings().home != Path("/var/lib/tracer")


def test_settings_are_read_from_variables_and_normalised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACER_DATABASE_URL", "postgresql+psycopg://u:p@db/x")
    monkeypatch.setenv("TRACER_HOME", "~/records")
    monkeypatch.setenv("TRACER_MODEL", "openai:gpt-5-mini")
    monkeypatch.setenv("TRACER_URL", "https://tracer.example/t/")
    monkeypatch.setenv("TRACER_LEASE_SECONDS", "7.5")
    monkeypatch.setenv("TRACER_PROJECTORS", "3")
    settings = read_settings()
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == "postgresql+psycopg://u:p@db/x"
    assert settings.home == Path.home() / "records"
    assert settings.model == "openai:gpt-5-mini"
    assert settings.url == "https://tracer.example/t"
    assert settings.lease_terms.lease.total_seconds() == 7.5
    assert settings.projectors == 3


INVALID = [
    ("TRACER_DATABASE_URL", "mysql://u:p@h/d", "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"),
    ("TRACER_URL", "tracer:8420", "http://HOST:PORT"),
    ("TRACER_URL", "ftp://tracer", "https://HOST"),
    ("TRACER_URL", "http://", "https://HOST"),
    ("TRACER_URL", "http://u:hush-password@tracer", "https://HOST"),
    ("TRACER_API_KEY", "a key", "without spaces"),
    ("TRACER_API_KEY", "kéy", "as it was created"),
    ("TRACER_APP", "health", "health:application"),
    ("TRACER_APP", "my health:application", "MODULE:NAME"),
    ("TRACER_MODEL", "gpt-5", "openai:MODEL"),
    ("TRACER_MODEL", "openai:", "openai:MODEL"),
    ("TRACER_PROJECTORS", "-1", "greater than or equal to 0"),
    ("TRACER_PROJECTORS", "65", "less than or equal to 64"),
    ("TRACER_PROJECTORS", "thread", "write a number, for example 2, the default"),
    ("TRACER_BACKLOG_BYTES", "0", "greater than 0"),
    ("TRACER_LEASE_SECONDS", "0", "greater than or equal to 1"),
    ("TRACER_LEASE_SECONDS", "a minute", "write a number, for example 60, the default"),
    ("TRACER_GRPC_PORT", "none", "write a number"),
    ("TRACER_SPAN_IDLE_SECONDS", "nan", "less than or equal to"),
]
"""Name, value, and the advice in the error."""


def error_of(name: str, value: str) -> str:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(name, value)
        try:
            read_settings()
        except ConfigurationError as error:
            return str(error)
    return "accepted"


def test_an_invalid_value_is_rejected_with_its_name_and_advice() -> None:
    failures = [
        f"{name}={value}: {error}"
        for name, value, advice in INVALID
        if name not in (error := error_of(name, value)) or advice not in error or "hush" in error
    ]
    assert failures == []


@pytest.mark.parametrize("variable", REMOVED)
def test_removed_variable_has_no_effect_and_warns(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = read_settings()
    monkeypatch.setenv(variable, "5")
    with pytest.warns(FutureWarning, match=f"{variable} has no effect. {REMOVED[variable]}"):
        assert read_settings() == expected


def test_secrets_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACER_DATABASE_URL", "postgresql://u:hush-password@h/d")
    monkeypatch.setenv("TRACER_API_KEY", "hush-key")
    assert "hush" not in repr(read_settings())
    monkeypatch.setenv("TRACER_DATABASE_URL", "mysql://u:hush-password@h/d")
    with pytest.raises(ConfigurationError) as refusal:
        read_settings()
    assert "hush" not in str(refusal.value)
    assert refusal.value.__cause__ is None
