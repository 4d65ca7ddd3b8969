"""A run of an application's agents."""

from __future__ import annotations

from typing import Any

from tracer.clock import time_zone
from tracer.context import ToolContext
from tracer.errors import LineageError
from tracer.runtime.application import Application
from tracer.runtime.instructions import Instructions
from tracer.tools.run_scope import RunScope


class AgentRun(RunScope):
    """What all parts of one run of an application share."""

    def __init__(self, application: Application, *arguments: Any, **options: Any) -> None:
        """Begin a run.

        Args:
            application: Whose agents run.
            arguments: See `RunScope`.
            options: See `RunScope`.
        """
        super().__init__(*arguments, limits=application.budget, **options)
        self.application = application
        self.instructions = Instructions(
            self,
            every_text=[
                each.all_instructions for each in application.agents if each.resolve_in_context
            ],
            zone=time_zone(application.time_zone),
        )


def agent_run_of(context: ToolContext) -> AgentRun:
    """Return the run of agents that a call belongs to.

    Raises:
        LineageError: It belongs to none: there are no agents to carry out a plan.
    """
    if not isinstance(context.run, AgentRun):
        raise LineageError("This tool opens plans for agents, so only a running plan can call it.")
    return context.run
