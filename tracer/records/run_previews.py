"""Rows of the run list: a run with its question and answer, its failure, and its running call."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from pydantic import BaseModel

from tracer.records.record_classes import Kind, Run

PREVIEW_CHARACTERS = 300
"""The maximum length of a question, an answer, an error or arguments in the list."""


class _Part(BaseModel, use_attribute_docstrings=True):
    pass


class RunFailure(_Part):
    """The record that made a run fail."""

    kind: Kind
    id: UUID
    name: str | None
    """The name of the agent, the model or the tool that failed."""
    reason: str | None
    """The reason of the record's status, as a code."""
    error_type: str | None
    """The error's class or code."""
    error_message: str | None
    """The first 300 characters of the error's message."""
    depth: int
    """The number of agents above the one that failed: 0 if the root agent itself failed."""


class OpenCall(_Part):
    """The tool call or model call that a run waits for."""

    kind: Kind
    """`toolCall` or `thinkAct`."""
    id: UUID
    name: str | None
    """The name of the tool or the model."""
    arguments: str | None
    """The first 300 characters of a tool call's arguments."""
    started_at: datetime | None


class RunPreview(Run):
    """A run as a row of the run list."""

    request: str | None = None
    """The first 300 characters of the question."""
    answer: str | None = None
    """The first 300 characters of the answer."""
    sub_agents: int = 0
    """The number of plans below the root plan."""
    failures: int = 0
    """The number of failures: failed records without a failed record below them. If one failure
    made several records fail, it is counted once. `failedCalls` counts all failed calls."""
    handled_failures: int = 0
    """The number of failures that did not make the run fail."""
    failure: RunFailure | None = None
    """The failure that made the run fail. If there are several, the one below the most agents, and
    then the earliest."""
    open_call: OpenCall | None = None
    """The call that the run waits for: of the running calls that wait for no other call or agent,
    the earliest. None if the run has ended."""
    seen_at: datetime | None = None
    """The time of the latest heartbeat of the run's recorders; None if the run has ended."""


class NotableRecord(NamedTuple):
    """A failed or running record of a run."""

    root_plan_id: UUID
    kind: Kind
    record_id: UUID
    has_failed: bool
    name: str | None
    started_at: datetime | None
    finished_at: datetime | None
    reason: str | None
    error_type: str | None
    error_message: str | None
    arguments: str | None
    tool_call: UUID | None
    think_act: UUID | None
    step: UUID | None
    plan: UUID | None
    """As `tool_call`, `think_act` and `step`: the id of the record of this kind above this one."""


class RunTexts(NamedTuple):
    """The request, the answer and the number of sub-agents of a run."""

    request: str | None
    answer: str | None
    sub_agents: int


def open_call(records: Iterable[NotableRecord]) -> NotableRecord | None:
    """Return the model call or tool call that a run waits for.

    This is the earliest running call that has no running record below it; None if there is none.
    """
    running = [each for each in records if not each.has_failed]
    occupied = {each.tool_call for each in running}
    waiting = [
        each
        for each in running
        if each.kind in (Kind.THINK_ACT, Kind.TOOL_CALL) and each.record_id not in occupied
    ]
    return min(waiting, key=_start, default=None)


def _start(record: NotableRecord) -> tuple[bool, float, str]:
    at = record.started_at
    return at is None, 0.0 if at is None else at.timestamp(), str(record.record_id)
