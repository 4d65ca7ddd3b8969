"""`Application` is the agents of a process with their resources. `ApplicationRun` is one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any

from tracer.clock import time_zone
from tracer.context import ToolContext, token_of
from tracer.errors import BadRequest, ConfigurationError, LineageError, ToolError
from tracer.runtime.agent import Agent
from tracer.runtime.chat_model import ChatModel
from tracer.runtime.instructions import Instructions
from tracer.tools.call.active_run import ActiveRun
from tracer.tools.call.budget import BudgetLimits
from tracer.tools.definition.hidden_parameters import Secrets, TokenResolver, token_is_user_id
from tracer.tools.definition.toolkit import Toolkit, common_state
from tracer.tools.registry import ToolRegistry

MAX_DEPTH = 10
"""The default of `Application.max_depth`."""


HISTORY_CHARACTERS = 20_000
"""The default of `Application.history_characters`: about 5,000 tokens of English."""


@dataclass(frozen=True)
class Surroundings:
    """The environment that an application is served in."""

    database_url: str | None
    """The Postgres database; None if records are sent to a server over HTTP."""
    server_url: str | None = None
    """The address of the server, such as `http://127.0.0.1:8420`."""
    server_key: str | None = field(default=None, repr=False)
    """The key with which tools can access the server, if it requires one."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Application:
    """Agents with their models, tools and limits. `TRACER_APP` names the application to load."""

    name: str
    agents: tuple[Agent, ...]
    model: ChatModel | None = None
    """The model of the planner, and of every agent that has none of its own. None: the model that
    `TRACER_MODEL` names."""
    fallback_model: ChatModel | None = None
    """Used if `model` is None and `TRACER_MODEL` is not set."""
    default_agent: str | None = None
    """The name of the agent for steps without an agent; by default, the first agent."""
    planner_instructions: str = ""
    """Additional instructions for the planner."""
    max_depth: int = MAX_DEPTH
    """How deep sub-plans may be nested. The root plan is at depth 0."""
    run_timeout: float | None = None
    """After how many seconds a run times out."""
    resources: Callable[[Surroundings], AbstractAsyncContextManager[object]] | None = None
    """Opens the resources of the tools, such as tables, while the application is served."""
    registry: ToolRegistry = field(default_factory=ToolRegistry)
    """The tools that agents name, and the MCP servers."""
    token_resolver: TokenResolver = token_is_user_id
    """Returns the user that a caller's token belongs to."""
    record_user: bool = False
    """Whether a run records the caller's user id even if it is the caller's token, as with the
    default token resolver. Any other user id is always recorded, as the run's `subject`."""
    session_state: Mapping[str, Any] = field(default_factory=dict)
    """The initial state of a conversation. Toolkits and agents may add keys (`initial_state`)."""
    time_zone: str = "UTC"
    """The IANA name of the time zone of `{current_date}` in instructions, for callers without one
    of their own (`User.time_zone`)."""
    history_characters: int = HISTORY_CHARACTERS
    """The largest number of characters of a session's earlier messages and answers that an agent
    receives (`tracer.runtime.history`). 0: no history."""
    budget: BudgetLimits = field(default_factory=BudgetLimits)
    """The budget of a run, including its sub-plans."""
    max_parallel_calls: int | None = None
    """How many tool calls of a run are executed at once, across all of its agents."""
    agents_by_name: Mapping[str, Agent] = field(init=False)
    zone: tzinfo = field(init=False)
    """The time zone that `time_zone` names."""
    initial_state: Mapping[str, Any] = field(init=False)
    """`session_state` over the states of the toolkits, and under those of the agents, of which the
    first takes precedence. A run of one agent begins with this agent's state above it."""

    def __post_init__(self) -> None:
        if not self.agents:
            raise ConfigurationError(f"The application {self.name!r} has no agents. Add one.")
        by_name = {each.name: each for each in self.agents}
        if len(by_name) < len(self.agents):
            raise ConfigurationError(
                f"The application {self.name!r} has two agents of the same name. Rename one."
            )
        object.__setattr__(self, "agents_by_name", by_name)
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
        state |= self.session_state
        for each in reversed(self.agents):
            state |= each.session_state
        object.__setattr__(self, "initial_state", state)
        if self.default_agent is None:
            object.__setattr__(self, "default_agent", self.agents[0].name)
        self.agent(None)

    def with_model(self, configured: ChatModel | None = None) -> Application:
        """Return the application with a `model`: its own, the configured or the fallback model.

        Args:
            configured: The model that `TRACER_MODEL` names.

        Raises:
            ConfigurationError: `model`, `configured` and `fallback_model` are all None.
        """
        model = self.model or configured or self.fallback_model
        if model is None:
            raise ConfigurationError(
                f"The application {self.name!r} has no model. Set TRACER_MODEL to openai:NAME, "
                "or pass a model: Application(model=…)."
            )
        return replace(self, model=model)

    def model_of(self, agent: Agent) -> ChatModel:
        """Return the model of an agent. Call it only after `with_model`."""
        model = agent.model or self.model
        assert model is not None
        return model

    def agent(self, name: str | None) -> Agent:
        """Return the agent of this name; the default agent for None.

        Raises:
            BadRequest: There is no such agent.
        """
        name = self.default_agent if name is None else name
        agent = self.agents_by_name.get(name or "")
        if agent is None:
            names = ", ".join(sorted(self.agents_by_name))
            raise BadRequest(f"There is no agent {name!r}. Choose one of: {names}.")
        return agent


class ApplicationRun(ActiveRun):
    """One run of an application's agents."""

    def __init__(self, application: Application, *arguments: Any, **options: Any) -> None:
        """Start a run.

        Args:
            application: The application whose agents run.
            arguments: See `ActiveRun`.
            options: See `ActiveRun`.
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

    async def recorded_user(self) -> str | None:
        """Return the caller's user id for the run's record; None if there is none to record.

        A user id that contains the caller's token is returned only if the application asks for it.
        """
        if self.identity is None:
            return None
        try:
            user = await self.user()
        except ToolError:
            return None  # calls that need the user fail with the reason
        secrets, token = Secrets(), token_of(self.identity)
        secrets.add(token)
        is_secret = user.user_id == token or secrets.scrub(user.user_id) != user.user_id
        return None if is_secret and not self.application.record_user else user.user_id


def application_run_of(context: ToolContext) -> ApplicationRun:
    """Return the application's run that a call belongs to.

    Raises:
        LineageError: The call does not belong to a run of an application.
    """
    if not isinstance(context.run, ApplicationRun):
        raise LineageError("This tool opens plans for agents, so only a running plan can call it.")
    return context.run
