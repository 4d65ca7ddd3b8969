"""An application: the agents of a process, their resources, and a run of its agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any

from tracer.clock import time_zone
from tracer.context import ToolContext
from tracer.errors import BadRequest, ConfigurationError, LineageError
from tracer.runtime.agent import Agent
from tracer.runtime.chat_model import ChatModel
from tracer.runtime.instructions import Instructions
from tracer.tools.call.active_run import RunScope, TokenResolver, token_is_user_id
from tracer.tools.call.budget import BudgetLimits
from tracer.tools.definition.toolkit import Toolkit, common_state
from tracer.tools.registry import ToolRegistry

MAX_DEPTH = 10
"""How deep sub-plans may be nested unless the application says otherwise."""


HISTORY_CHARACTERS = 20_000
"""The default of `Application.history_characters`: about 5,000 tokens of English."""


@dataclass(frozen=True)
class Surroundings:
    """Where an application is served."""

    database_url: str | None
    """The Postgres; None where there is none, because records go to a server over HTTP."""
    server_url: str | None = None
    """The address of the server, such as `http://127.0.0.1:8420`."""
    server_key: str | None = field(default=None, repr=False)
    """What tools show the server to be let in, where it wants a key."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Application:
    """What `TRACER_APP` names."""

    name: str
    agents: tuple[Agent, ...]
    model: ChatModel | None = None
    """Plans, and thinks for every agent that has no model of its own. None means the model that
    `TRACER_MODEL` names."""
    fallback_model: ChatModel | None = None
    """Takes the place of `model` if that is None and `TRACER_MODEL` is not set."""
    default_agent: str | None = None
    """Who carries out steps that name nobody; the first agent unless given."""
    planner_instructions: str = ""
    """What the planner should know besides its agents."""
    max_depth: int = MAX_DEPTH
    """How deep sub-plans may be nested: the root plan is at depth 0."""
    run_timeout: float | None = None
    """After how many seconds a run is over."""
    resources: Callable[[Surroundings], AbstractAsyncContextManager[object]] | None = None
    """Opens what the tools need, such as tables, for the time that the application is served."""
    registry: ToolRegistry = field(default_factory=ToolRegistry)
    """The tools that agents name, and the MCP servers."""
    token_resolver: TokenResolver = token_is_user_id
    """Turns a caller's token into a user."""
    session_state: Mapping[str, Any] = field(default_factory=dict)
    """The state that a conversation begins with. Toolkits may add keys (`initial_state`)."""
    time_zone: str = "UTC"
    """The IANA name of the time zone of `{current_date}` in instructions, for callers without one
    of their own (`User.time_zone`)."""
    history_characters: int = HISTORY_CHARACTERS
    """How many characters of a session's earlier messages and answers an agent receives at most
    (`tracer.runtime.history`); 0: none."""
    budget: BudgetLimits = field(default_factory=BudgetLimits)
    """What a run may use up, its sub-plans included."""
    max_parallel_calls: int | None = None
    """How many tool calls of a run are carried out at once, in all of its agents."""
    agents_by_name: Mapping[str, Agent] = field(init=False)
    zone: tzinfo = field(init=False)
    """The time zone of the name `time_zone`."""
    initial_state: Mapping[str, Any] = field(init=False)
    """`session_state`, and what the toolkits of the registry and of the agents add to it."""

    def __post_init__(self) -> None:
        if not self.agents:
            raise ConfigurationError(f"The application {self.name!r} has no agents: add one.")
        named = {each.name: each for each in self.agents}
        if len(named) < len(self.agents):
            raise ConfigurationError(
                f"The application {self.name!r} has two agents of one name: give each its own."
            )
        object.__setattr__(self, "agents_by_name", named)
        try:
            object.__setattr__(self, "zone", time_zone(self.time_zone))
        except ValueError as error:
            raise ConfigurationError(
                f"The application {self.name!r} has time_zone={self.time_zone!r}: {error}. Write "
                "a name such as 'Asia/Shanghai' or 'UTC'."
            ) from None
        if self.history_characters < 0:
            raise ConfigurationError(
                f"The application {self.name!r} has history_characters={self.history_characters}: "
                "set a number of characters, or 0 for no history."
            )
        for each in self.agents:
            each.check_tools(self.registry)
        of_agents = [tool for each in self.agents for tool in each.tools]
        toolkits = [each for each in of_agents if isinstance(each, Toolkit)]
        state = common_state([*self.registry.toolkits, *toolkits])
        object.__setattr__(self, "initial_state", {**state, **self.session_state})
        if self.default_agent is None:
            object.__setattr__(self, "default_agent", self.agents[0].name)
        self.agent(None)

    def with_model(self, configured: ChatModel | None = None) -> Application:
        """Return the application with a `model`: its own, else the configured, else the fallback.

        Args:
            configured: The model that `TRACER_MODEL` names.

        Raises:
            ConfigurationError: All three are missing.
        """
        model = self.model or configured or self.fallback_model
        if model is None:
            raise ConfigurationError(
                f"The application {self.name!r} names no model. Set TRACER_MODEL to openai:NAME, "
                "or give the application a model: Application(model=…)."
            )
        return replace(self, model=model)

    def model_of(self, agent: Agent) -> ChatModel:
        """Return the model that an agent thinks with; call it after `with_model`."""
        model = agent.model or self.model
        assert model is not None
        return model

    def agent(self, name: str | None) -> Agent:
        """Return the agent of this name; the default agent for None.

        Raises:
            BadRequest: There is no such agent.
        """
        wanted = self.default_agent if name is None else name
        found = self.agents_by_name.get(wanted or "")
        if found is None:
            names = ", ".join(sorted(self.agents_by_name))
            raise BadRequest(f"There is no agent {wanted!r} here. Name one of: {names}.")
        return found


class AgentRun(RunScope):
    """One run of an application, shared by all its parts."""

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
            zone=application.zone,
        )


def agent_run_of(context: ToolContext) -> AgentRun:
    """Return the run of agents that a call belongs to.

    Raises:
        LineageError: The call does not belong to a run of agents.
    """
    if not isinstance(context.run, AgentRun):
        raise LineageError("This tool opens plans for agents, so only a running plan can call it.")
    return context.run
