"""Agents: who carries out the steps of plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tracer.runtime.chat_model import ChatModel, ToolSpec
from tracer.tools.definition import Tool
from tracer.tools.registry import tools_by_name


@dataclass(frozen=True, eq=False)
class Agent:
    """A model with instructions and tools."""

    name: str
    instructions: str
    """What it is there for and how it works, in words for the model."""
    tools: tuple[Tool, ...] = ()
    description: str = ""
    """What it is good at, in words for the planner."""
    model: ChatModel | None = None
    """None: the application's."""
    max_rounds: int = 30
    """How often the model is asked within one step."""
    max_parallel: int = 8
    """How many of one round's tool calls run at once."""
    tools_by_name: Mapping[str, Tool] = field(init=False)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("An agent needs a name.")
        if self.max_rounds < 1 or self.max_parallel < 1:
            raise ValueError(f"The agent {self.name!r} needs at least one round and one call.")
        object.__setattr__(
            self, "tools_by_name", tools_by_name(f"The agent {self.name!r}", self.tools)
        )

    def offered_tools(self, may_open_plans: bool) -> list[ToolSpec]:
        """Return the tools as the model sees them.

        Args:
            may_open_plans: Whether sub-plans can be nested deeper yet.
        """
        return [
            ToolSpec(each.name, each.description, each.parameters)
            for each in self.tools
            if may_open_plans or not each.opens_plans
        ]


def introduction(name: str) -> str:
    """Return the first line of an agent's system message; a script finds its agent by it."""
    return f"You are the agent {name!r}."
