"""Tools that return their caller, and a check that it is the right one."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

from tests.tools.service_bench import Service
from tracer.tools import CallOutcome, tool
from tracer.tools.parameters import TokenId, UserId


@tool
async def whoami(user_id: UserId, token: TokenId, asked: str) -> list[str]:
    """Return the caller after other tasks have run."""
    await asyncio.sleep(0)
    return [user_id, token, asked]


@tool
def whoami_in_thread(user_id: UserId, token: TokenId, asked: str) -> list[str]:
    """Return the caller from a thread."""
    return [user_id, token, asked]


@tool
async def through_another(asked: str, token: TokenId) -> Any:
    """Asks another tool."""
    outcome = await the_service.get().tools.call("whoami", {"asked": asked})
    return [*_words(outcome), token]


@tool
def through_another_in_thread(asked: str, token: TokenId) -> Any:
    """Asks another tool from a thread."""
    outcome = the_service.get().tools.call_sync("whoami_in_thread", {"asked": asked})
    return [*_words(outcome), token]


the_service: contextvars.ContextVar[Service] = contextvars.ContextVar("service")

ALL = (whoami, whoami_in_thread, through_another, through_another_in_thread)


def _words(outcome: CallOutcome) -> list[str]:
    return [str(outcome.reason), str(outcome.result)]


def resolve(token_id: str) -> str:
    return f"of {token_id}"


# Tokens too short to be taken out of results: these tests look at them.
A, B = "A1", "B2"


def check(outcome: CallOutcome, who: str | None, asked: str) -> None:
    """Check that a call was made for one user and nobody else."""
    said = str(outcome.result) + outcome.for_model
    others = {A, B} - {who}
    assert not any(other in said for other in others), said
    if who is None:
        assert "missing_identity" in said
    else:
        assert outcome.reason is None
        assert f"of {who}" in said
        assert asked in said
