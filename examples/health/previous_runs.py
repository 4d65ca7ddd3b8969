"""A REST tool that reads the latest runs from the server in which the agents run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from secrets import token_urlsafe
from typing import Any

from pydantic import BaseModel, ConfigDict, SecretStr, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from tracer import BearerAuth, InvalidResult, RestConfig, Surroundings, Tool, ToolError, rest_tool

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
"""The private hosts that the tool may reach: the server listens on one of them."""

TIMEOUT = 5.0

PARAMETERS = {
    "type": "object",
    "properties": {
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 20,
            "description": "The number of runs to return.",
        }
    },
    "required": ["limit"],
    "additionalProperties": False,
}


class PreviousRun(BaseModel):
    """The fields of a run that a model receives. The title is omitted: another user wrote it."""

    model_config = ConfigDict(alias_generator=to_camel)

    started_at: datetime
    status: str
    tool_calls: int
    failures: int


_RUNS = TypeAdapter(list[PreviousRun])


class OwnServer:
    """The server that the application runs in, known while it is open."""

    def __init__(self) -> None:
        self._around = Surroundings(None)

    @contextmanager
    def open(self, surroundings: Surroundings) -> Iterator[None]:
        """Set the server's address and key inside the block, if there is a server."""
        self._around = surroundings
        try:
            yield
        finally:
            self._around = Surroundings(None)

    def url(self) -> str:
        """Return the server's address.

        Raises:
            ToolError: The agents do not run in a server.
        """
        if self._around.server_url is None:
            raise ToolError(
                "The agents do not run in a server here, so previous runs cannot be read. Continue "
                "without them."
            )
        return self._around.server_url

    def key(self) -> SecretStr:
        """Return the key for the server. A server without keys accepts any text."""
        return SecretStr(self._around.server_key or token_urlsafe())


def previous_runs_tool(server: OwnServer) -> Tool:
    """Return the tool that reads the newest runs of a server."""
    asking = rest_tool(
        name="previous_runs",
        description=(
            "Return when the latest runs of the agents started and how they ended, newest first. "
            "The first is the current run."
        ),
        parameters=PARAMETERS,
        config=RestConfig(
            base_url=server.url,
            path="/api/runs",
            auth=BearerAuth(secret=server.key),
            response="/items",
            allowed_hosts=LOOPBACK,
        ),
        timeout=TIMEOUT,
        max_attempts=2,
    )
    return replace(asking, check_result=_shown)


def _shown(runs: Any) -> list[PreviousRun]:
    try:
        return _RUNS.validate_python(runs)
    except ValidationError:
        raise InvalidResult("The server's list of runs can't be read.") from None
