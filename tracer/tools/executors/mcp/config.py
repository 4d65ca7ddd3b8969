"""What an MCP server is reached by, and what its tools may do."""

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
"""A value that is a secret's place. A `file://` URL is not."""

_HTTP_URL: TypeAdapter[AnyHttpUrl] = TypeAdapter(AnyHttpUrl)


class McpConfig(BaseModel):
    """One MCP server: a command that speaks over stdio, or the URL of a streamable HTTP one.

    A value of `env` or `headers` may be a reference to a secret, such as `env:WEATHER_TOKEN`. It is
    read anew for each connection.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str = Field(min_length=1, max_length=64)
    """What the server is called in logs and errors."""
    command: str | None = None
    """The program that is the server."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    """Its environment, besides the few variables that the `mcp` library hands down."""
    stderr: Path | None = None
    """The file that what it writes to standard error is added to; dropped unless given."""
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    bearer: SecretReference | None = None
    """Where the token is that authorises us to a server with a URL."""
    protocol: Literal["auto", "legacy"] = "auto"
    """`legacy` starts with the handshake of 2025 and before: for servers that choke on being asked
    for a newer one first."""
    prefix: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]+$")
    """What the tools' names begin with here, followed by `_`; unless given, they are the server's
    own."""
    tools: frozenset[str] | None = None
    """Which of the server's tools are taken, by the server's names; all unless given."""
    tags: frozenset[str] = frozenset()
    """The tags of all its tools."""
    hidden: dict[str, Any] = Field(default_factory=dict)
    """Parameters of its tools that the runtime fills, by name: `{"token_id": TokenId}`, or in a
    file `{token_id = "token"}`. Each applies to every tool that has a parameter of that name."""
    timeout: PositiveFloat = 60.0
    """After how many seconds a call is given up."""
    connect_timeout: PositiveFloat = 30.0
    """How many seconds the server may take to start and to list its tools."""
    max_attempts: PositiveInt = 1
    """How often a call is tried, for tools that declare that repeating them does no harm."""
    max_result_bytes: Annotated[int, Field(ge=1_000)] = 1_000_000
    """How big a result may be, as text in UTF-8."""

    @model_validator(mode="after")
    def _has_one_transport(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server has either a command or a url")
        if self.url is None and (self.headers or self.bearer):
            raise ValueError("headers and bearer are for a server with a url")
        if self.url is not None:
            _HTTP_URL.validate_python(self.url)
            if self.args or self.env or self.stderr:
                raise ValueError("args, env and stderr are for a server with a command")
        return self


def with_secrets(values: Mapping[str, str]) -> dict[str, str]:
    """Return values with the secrets that some of them refer to.

    Raises:
        ToolError: A secret is missing.
    """
    return {
        name: read_secret(value).get_secret_value() if _REFERENCE.fullmatch(value) else value
        for name, value in values.items()
    }
