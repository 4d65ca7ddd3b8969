"""The configuration of an MCP server: its address, and limits on its tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AnyHttpUrl,
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    model_validator,
)

from tracer.tools.executors.secrets import SecretReference, read_secret

_REFERENCE = re.compile(r"env:\w+|file:(?!//).+")
"""Matches a reference to a secret. A `file://` URL is not a reference."""

_HTTP_URL: TypeAdapter[AnyHttpUrl] = TypeAdapter(AnyHttpUrl)


class McpConfig(BaseModel):
    """One MCP server: a command whose process is reached over stdio, or a URL (streamable HTTP).

    A value of `env` or `headers` may be a reference to a secret, such as `env:WEATHER_TOKEN`. The
    secret is read for each connection.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str = Field(min_length=1, max_length=64)
    """The server's name in logs and errors."""
    command: str | None = None
    """The program to start."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    """Environment variables, in addition to the few that the `mcp` library passes on."""
    stderr: Path | None = None
    """The file to which the process's standard error is appended. By default it is discarded."""
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    bearer: SecretReference | None = None
    """A reference to the bearer token for a server with a URL."""
    protocol: Literal["auto", "legacy"] = "auto"
    """`legacy` begins with the handshake of the protocol versions up to 2025. Use it for servers
    that fail if the client asks for a newer version first."""
    prefix: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]+$")
    """A prefix for the names of the server's tools, separated by `_`. By default, no prefix."""
    tools: frozenset[str] | None = None
    """The tools to use, by the names that the server gives them. By default, all tools."""
    tags: frozenset[str] = frozenset()
    """The tags of all its tools."""
    hidden: dict[str, Any] = Field(default_factory=dict)
    """Parameters of its tools that the runtime fills, by name: `{"token_id": TokenId}`, or in a
    file `{token_id = "token"}`. Each applies to every tool that has a parameter of that name."""
    timeout: PositiveFloat = 60.0
    """The timeout of a call in seconds."""
    connect_timeout: PositiveFloat = 30.0
    """How many seconds the server may take to start and to list its tools."""
    max_attempts: PositiveInt = 1
    """The largest number of attempts. Only tools declared idempotent or read-only are retried."""
    max_result_bytes: Annotated[int, Field(ge=1_000)] = 1_000_000
    """The largest size of a result, as UTF-8 text."""

    @model_validator(mode="after")
    def _has_one_transport(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server must have either a command or a url")
        if self.url is None and (self.headers or self.bearer):
            raise ValueError("headers and bearer are only valid with a url")
        if self.url is not None:
            _HTTP_URL.validate_python(self.url)
            if self.args or self.env or self.stderr:
                raise ValueError("args, env and stderr are only valid with a command")
        return self


def with_secrets(values: Mapping[str, str]) -> dict[str, str]:
    """Return values with references replaced by the secrets.

    Raises:
        ToolError: A secret is missing.
    """
    return {
        name: read_secret(value).get_secret_value() if _REFERENCE.fullmatch(value) else value
        for name, value in values.items()
    }
