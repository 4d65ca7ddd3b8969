"""The settings: `TRACER_…` environment variables with their types and defaults."""

import os
import sys
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
)
from pydantic_core import ErrorDetails

from tracer.errors import ConfigurationError
from tracer.records import DEFAULT_TERMS, LeaseTerms
from tracer.redaction import Redaction, configured_keys, configured_patterns

LOCAL_SERVER = "http://127.0.0.1:8420"
"""The default address of `tracer serve`."""

MEMORY = "memory:"
"""The value of `TRACER_URL` that makes a process record in memory, for tests."""


def _check_database_url(url: SecretStr) -> SecretStr:
    # `postgresql+psycopg://` is SQLAlchemy's notation of the same URL.
    scheme = urlsplit(url.get_secret_value()).scheme.partition("+")[0]
    if scheme not in ("postgresql", "postgres"):
        raise ValueError("write the address as postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
    return url


def _check_url(url: str) -> str:
    if url == MEMORY:
        return url
    parts = urlsplit(url)
    is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
    # Credentials in the address would appear in logs; the key has a setting of its own.
    if not is_address or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("write the address as http://HOST:PORT or https://HOST")
    return url.rstrip("/")


def _check_api_key(key: SecretStr) -> SecretStr:
    text = key.get_secret_value()
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("write the key exactly as it was created, without spaces or line breaks")
    return key


def _check_app(app: str) -> str:
    module, colon, name = app.partition(":")
    parts = [*module.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError("write the application as MODULE:NAME, for example health:application")
    return app


def _check_model(model: str) -> str:
    provider, _, name = model.partition(":")
    if provider != "openai" or not name:
        raise ValueError("write the model as openai:MODEL, for example openai:gpt-5-mini")
    return model


def _check_keys(keys: str) -> str:
    configured_keys(keys)
    return keys


def _check_patterns(patterns: SecretStr) -> SecretStr:
    configured_patterns(patterns.get_secret_value())
    return patterns


def _absolute(directory: str | None) -> str | None:
    is_path = directory not in (None, "off")
    return str(Path(directory or "").expanduser().absolute()) if is_path else directory


def default_home() -> Path:
    """Return the default directory of the embedded Postgres and of the recorder's spool.

    For root, the directory is not in root's home. PostgreSQL refuses to run as root, and the user
    that it runs as instead cannot access root's home.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/tracer")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "tracer"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "tracer"


class Settings(BaseModel):
    """All settings, validated. Use `read_settings` to read them from the environment."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        # Error messages must not quote values: an invalid database URL may contain a password.
        hide_input_in_errors=True,
    )

    database_url: Annotated[SecretStr, AfterValidator(_check_database_url)] | None = Field(
        default=None, description="The Postgres to keep records in; unset: an embedded one."
    )
    direct_database_url: Annotated[SecretStr, AfterValidator(_check_database_url)] | None = Field(
        default=None,
        description="The same Postgres without the pooler. Required if TRACER_DATABASE_URL points "
        "to a pooler in transaction mode, such as PgBouncer.",
    )
    url: Annotated[str, AfterValidator(_check_url)] | None = Field(
        default=None, description="The tracer server to record to over HTTP, with no database here."
    )
    api_key: Annotated[SecretStr, AfterValidator(_check_api_key)] | None = Field(
        default=None, description="The key for that server, if it requires one."
    )
    disabled: bool = Field(
        default=False, description="Whether `tracer.connect()` records nothing: 1 turns it off."
    )
    announce: bool = Field(
        default=True,
        description="Whether a program that records prints the address of its first stored run to "
        "standard error, if that is a terminal: 0 turns it off.",
    )
    home: Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())] = Field(
        default_factory=default_home,
        description="The directory of the embedded Postgres and the recorder's spool.",
    )
    search_dir: Annotated[str | None, AfterValidator(_absolute)] = Field(
        default=None,
        description="The directory of the search index; unset: `search` in TRACER_HOME. `off` "
        "turns the search off.",
    )
    app: Annotated[str, AfterValidator(_check_app)] | None = Field(
        default=None,
        description="The application whose agents and tools the server may run; unset: none.",
    )
    hosts: str | None = Field(
        default=None,
        description="The names that the server may be called by, separated by commas; unset: any "
        "where keys are needed, else those of this machine.",
    )
    otlp_origins: str | None = Field(
        default=None,
        description="The origins of web pages that may send OTLP from a browser, such as "
        "`https://app.example.com`, separated by commas; unset: none of other sites.",
    )
    lease_seconds: float = Field(
        default=DEFAULT_TERMS.lease.total_seconds(),
        ge=1,
        le=86_400,
        description="The heartbeat timeout, after which open records of a recorder are abandoned.",
    )
    span_idle_seconds: float = Field(
        default=DEFAULT_TERMS.span_idle.total_seconds(),
        ge=1,
        le=31_536_000,
        description="The same timeout for runs without a recorder, such as OpenTelemetry spans.",
    )
    projectors: int = Field(
        default=2,
        ge=0,
        le=64,
        description="The number of processes that project accepted spans; 0 if others do this.",
    )
    backlog_bytes: int = Field(
        default=2**30,
        gt=0,
        description="The most bytes of accepted spans that may wait for a projector. Above that, "
        "new spans get 503.",
    )
    grpc_host: str = Field(
        default="127.0.0.1",
        description="The address on which the server listens for OTLP over gRPC.",
    )
    grpc_port: int | None = Field(
        default=None,
        ge=0,
        le=65_535,
        description="The port for OTLP over gRPC; 0: none. Unset: 4317, if no other program uses "
        "it.",
    )
    grpc_certificate: Path | None = Field(
        default=None, description="The certificate chain for gRPC over TLS, a file in PEM."
    )
    grpc_key: Path | None = Field(default=None, description="Its private key, a file in PEM.")
    model: Annotated[str, AfterValidator(_check_model)] | None = Field(
        default=None, description="The model of an application that names none."
    )

    redact: Literal["on", "off"] = Field(
        default="on", description="Whether secrets in recorded texts are masked."
    )
    redact_keys: Annotated[str, AfterValidator(_check_keys)] = Field(
        default="",
        description="More keys whose values are secrets, separated by commas.",
    )
    redact_values: Annotated[SecretStr, AfterValidator(_check_patterns)] = Field(
        default=SecretStr(""),
        description="More regular expressions of secrets, in RE2's syntax, separated by spaces.",
    )

    @property
    def search_directory(self) -> Path | None:
        """The directory of the search index; None: off."""
        if self.search_dir == "off":
            return None
        return self.home / "search" if self.search_dir is None else Path(self.search_dir)

    @property
    def redaction(self) -> Redaction:
        """The rules that mask secrets."""
        if self.redact == "off":
            return Redaction.off()
        patterns = configured_patterns(self.redact_values.get_secret_value())
        return Redaction(configured_keys(self.redact_keys), patterns)

    @property
    def lease_terms(self) -> LeaseTerms:
        """The lengths of leases."""
        return LeaseTerms(
            timedelta(seconds=self.lease_seconds), timedelta(seconds=self.span_idle_seconds)
        )


_PROXY = "Limit requests in a reverse proxy: see docs/guides/docker.md."
REMOVED = {
    "TRACER_BYTES_PER_SECOND": _PROXY,
    "TRACER_REQUESTS_PER_SECOND": _PROXY,
    "TRACER_SILENCE_SECONDS": "Set TRACER_SPAN_IDLE_SECONDS instead.",
}
"""Variables that earlier commits read, with advice. To be deleted with the first release."""


def read_settings(**settings: Any) -> Settings:
    """Read the settings from the environment variables `TRACER_…`.

    An empty variable counts as unset. If a variable of `REMOVED` is set, a `FutureWarning` gives
    advice.

    Args:
        settings: Values that replace those of the environment.

    Raises:
        ConfigurationError: A variable is invalid. The message names the variable and describes
            valid values.
    """
    for variable, advice in REMOVED.items():
        if os.environ.get(variable):
            # Users see it, unlike DeprecationWarning.
            warnings.warn(f"{variable} has no effect. {advice}", FutureWarning, stacklevel=2)
    try:
        values = {name: os.environ.get(_variable(name)) for name in Settings.model_fields}
        return Settings(**{name: value for name, value in values.items() if value} | settings)
    except ValidationError as error:
        sentences = [
            f"{_variable(str(problem['loc'][0]))} is invalid: {_advice(problem)}."
            for problem in error.errors(include_input=False, include_url=False)
        ]
        # `from None`, because the original error's context contains the invalid value.
        raise ConfigurationError(" ".join(sentences)) from None


def _advice(problem: ErrorDetails) -> str:
    if problem["type"] in ("float_parsing", "int_parsing"):
        default = Settings.model_fields[str(problem["loc"][0])].default
        example = "" if default is None else f", for example {default:g}, the default"
        return f"write a number{example}"
    return problem["msg"].removeprefix("Value error, ")


def _variable(setting: str) -> str:
    return f"TRACER_{setting.upper()}"
