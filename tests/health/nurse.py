"""The diary's tools, called as the runtime calls them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from health.agents import diary_tools
from health.diary import Diary
from health.entry_count import STATE_AT_FIRST
from health.identity import user_of
from tracer.context import identity
from tracer.recorder import Recorder, Spool
from tracer.storage.memory import recording_in_memory
from tracer.tools import CallOutcome, ToolRegistry, ToolResources, ToolService

PATIENT, OTHER_PATIENT = "user-p-1", "user-p-2"


class CallNurse(Protocol):
    """Calls a tool by its name, with arguments by keyword, for the patient unless for another."""

    def __call__(
        self, name: str, /, *, by: str = PATIENT, **arguments: Any
    ) -> Awaitable[CallOutcome]: ...


@asynccontextmanager
async def nurse_over(diary: Diary, home: Path) -> AsyncIterator[CallNurse]:
    """Give what calls the tools over a diary."""
    registry = ToolRegistry(diary_tools(diary))
    resources = ToolResources(resolve_token=user_of, initial_state=STATE_AT_FIRST)
    async with (
        Recorder(recording_in_memory(), Spool(home / "nurse.sqlite3")) as recorder,
        ToolService(registry, recorder, resources) as tools,
    ):

        async def call(name: str, /, *, by: str = PATIENT, **arguments: Any) -> CallOutcome:
            with identity(token_id=by):
                return await tools.call(name, json.dumps(arguments))

        yield call


def rows(outcome: CallOutcome) -> Any:
    """Return what a call that succeeded came to."""
    assert outcome.error is None, outcome.error
    assert outcome.result is not None
    return json.loads(outcome.result)


def refusal(outcome: CallOutcome) -> tuple[str | None, str | None]:
    """Return why a call failed, and in which words."""
    assert outcome.error is not None, outcome.result
    return outcome.reason, outcome.error.message
