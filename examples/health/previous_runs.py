"""A tool that asks the server itself, over HTTP, how the agents' last runs ended."""

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
"""The hosts that the tool may reach besides public ones: the server beside it is on one."""

TIMEOUT = 5.0

PARAMETERS = {
    "type": "object",
    "properties": {
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 20,
            "description": "How many runs to tell of.",
        }
    },
    "required": ["limit"],
    "additionalProperties": False,
}


class PreviousRun(BaseModel):
    """What a model is told of a run. Not its title: that holds another user's words."""

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
        """Know the server's address and key while inside, if there is one."""
        self._around = surroundings
        try:
            yield
        finally:
            self._around = Surroundings(None)

    def url(self) -> str:
        """Return the server's address.

        Raises:
            ToolError: No server runs beside the agents.
        """
        if self._around.server_url is None:
            raise ToolError(
                "No server runs beside the agents here, so nobody can tell of previous runs. Go "
                "on without."
            )
        return self._around.server_url

    def key(self) -> SecretStr:
        """Return what the server is shown. One that wants no key takes anything."""
        return SecretStr(self._around.server_key or token_urlsafe())


def previous_runs_tool(server: OwnServer) -> Tool:
    """Return the tool that asks a server for its newest runs."""
    asking = rest_tool(
        name="previous_runs",
        description=(
            "Tell when the agents last worked and how it ended, newest first: the first is the run "
            "that you are in."
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
