"""The health application: its tools, and the agents of `agents.yaml` that use them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

from health.blood_pressure import blood_pressure_tools
from health.demo import DemonstrationModel
from health.diary import Diary
from health.entry_count import STATE_AT_FIRST
from health.health_event import health_event_tools
from health.identity import user_of
from health.medication import medication_tools
from health.previous_runs import OwnServer, previous_runs_tool
from health.reviews import INTERACTION_CHECK, MEDICATION_CHECK, SYMPTOM_CHECK, WEEKLY_REVIEW
from health.symptom import symptom_tools
from tracer import (
    Application,
    McpConfig,
    McpServer,
    Surroundings,
    Tool,
    ToolRegistry,
    batch_tool,
    read_agents,
    subplan_tool,
)

PLANNER_INSTRUCTIONS = """\
The user speaks of their own health, and the agents' tools know who the user is: nobody needs to \
name or to ask for an id. Whatever the user reports goes to the nurse first, in the user's words \
and numbers. A review comes after that, and goes to the coordinator. Do not plan a review that was \
not asked for."""


CONNECT_SECONDS = 30.0
"""How many seconds the time server may take to start."""


def health_application(diary: Diary, connect_seconds: float = CONNECT_SECONDS) -> Application:
    """Return the health application over a diary, which it opens with its resources.

    Args:
        diary: A closed diary; one application opens it at a time.
        connect_seconds: How many seconds the time server may take to start.
    """
    server = OwnServer()

    @asynccontextmanager
    async def opened(surroundings: Surroundings) -> AsyncIterator[None]:
        with server.open(surroundings):
            async with diary.open(surroundings):
                yield

    return Application(
        name="health",
        agents=read_agents(files("health") / "agents.yaml"),
        fallback_model=DemonstrationModel(),
        planner_instructions=PLANNER_INSTRUCTIONS,
        resources=opened,
        registry=ToolRegistry(
            [*diary_tools(diary), *review_tools(), previous_runs_tool(server)],
            [time_server(connect_seconds)],
        ),
        token_resolver=user_of,
        session_state=STATE_AT_FIRST,
    )


def diary_tools(diary: Diary) -> tuple[Tool, ...]:
    """Return the twelve tools that record, query and update a diary."""
    return (
        *blood_pressure_tools(diary),
        *health_event_tools(diary),
        *medication_tools(diary),
        *symptom_tools(diary),
    )


def review_tools() -> tuple[Tool, ...]:
    """Return the tools that open reviews as sub-plans."""
    interaction_checks = batch_tool(
        subplan_tool(INTERACTION_CHECK),
        name="interaction_checks",
        description="Check pairs of the user's medications for interactions, each item a pair.",
    )
    checks = map(subplan_tool, (WEEKLY_REVIEW, MEDICATION_CHECK, SYMPTOM_CHECK))
    return (*checks, interaction_checks)


def time_server(connect_seconds: float = CONNECT_SECONDS) -> McpServer:
    """Return the time server: the MCP server `mcp-server-time`, over stdio.

    Args:
        connect_seconds: How many seconds it may take to start.
    """
    return McpServer(
        McpConfig(
            name="time",
            command=sys.executable,
            # -P: do not import modules from the current directory.
            args=("-P", "-m", "mcp_server_time", "--local-timezone", "UTC"),
            tools=frozenset({"get_current_time"}),
            timeout=10,
            connect_timeout=connect_seconds,
        )
    )
