"""An application: its agents, instructions and plans, and the history of a session."""

from __future__ import annotations

import asyncio
import json
import re
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tracer.clock import Clock, time_zone, utc_now
from tracer.context import ToolContext, token_of
from tracer.errors import (
    BadRequest,
    ConfigurationError,
    IdentityUnavailable,
    LineageError,
    MissingIdentity,
    PlanningError,
    RegistrationError,
    StoreUnavailable,
    ToolError,
    ToolUnavailable,
)
from tracer.logs import get_logger
from tracer.records import IdSource
from tracer.records.results import result_text
from tracer.records.sessions import State
from tracer.runtime.chat_model import ChatModel, Message
from tracer.store import Exchange
from tracer.text import unescape
from tracer.tools import (
    ActiveRun,
    BudgetLimits,
    EventRecorder,
    HookFunction,
    RunParameters,
    Tool,
    Toolkit,
    ToolRegistry,
    ToolResources,
    common_state,
    hooks_of,
    tools_by_name,
)
from tracer.tools.parameters import (
    CallingAgent,
    Parameter,
    Parameters,
    Secrets,
    TokenResolver,
    parameters_from_model,
    parameters_from_types,
    token_is_user_id,
)

# --- Agents, which carry out the steps of plans.

log = get_logger(__name__)


@dataclass(frozen=True, eq=False)
class Agent(CallingAgent):
    """A model with instructions and tools."""

    name: str = "agent"
    instructions: str = ""
    """The agent's purpose and way of working, in the system message for the model. `{placeholders}`
    are filled in at each run unless `resolve_in_context` is false."""
    tools: Sequence[Tool | Toolkit | str] = ()
    """Tools, toolkits, or names of tools in the application's registry."""
    description: str = ""
    """The agent's abilities. The planner reads this text when it assigns steps."""
    model: ChatModel | None = None
    """The agent's model. None: the agent uses the application's model."""
    max_rounds: int = 30
    """How many model calls one step may take."""
    max_parallel: int = 8
    """How many tool calls of one round run at once."""
    tool_hooks: Sequence[HookFunction] = ()
    """Hooks around each of the agent's tools, the outermost first
    (`tracer.tools.definition`)."""
    session_state: Mapping[str, Any] = field(default_factory=dict)
    """The state with which the agent's conversations begin. It takes precedence over the state of
    the application and of other agents."""
    resolve_in_context: bool = True
    """Whether `{placeholders}` in the instructions are filled in. If false, the instructions are
    sent as they are written."""

    def __post_init__(self) -> None:
        if not self.name:
            raise RegistrationError("An agent needs a name.")
        if self.max_rounds < 1 or self.max_parallel < 1:
            raise RegistrationError(
                f"The agent {self.name!r} needs max_rounds and max_parallel of at least 1."
            )
        object.__setattr__(self, "tool_hooks", hooks_of(self.tool_hooks))
        object.__setattr__(self, "tools", tuple(self.tools))
        names = [each if isinstance(each, str) else each.name for each in self._own_tools()]
        for name in names:
            if names.count(name) > 1:
                raise RegistrationError(
                    f"The agent {self.name!r} has two tools named {name!r}. Rename one, or remove "
                    "it."
                )

    @property
    def all_instructions(self) -> str:
        """The instructions of the agent and of its toolkits."""
        toolkits = [each for each in self.tools if isinstance(each, Toolkit)]
        texts = [self.instructions, *(each.instructions for each in toolkits)]
        return "\n\n".join(each for each in texts if each)

    def check_tools(self, registry: ToolRegistry) -> None:
        """Check that each tool of the agent is registered, or that an MCP server may provide it.

        Faulty tools of a file are accepted: the agent works without them.

        Raises:
            RegistrationError: A tool is not registered, and no server can provide it.
        """
        for each in self.tools:
            if not isinstance(each, str) or registry.find(each) is not None:
                continue
            if each in registry.refused or any(s.may_provide(each) for s in registry.servers):
                continue
            servers = ", and no MCP server can provide it" if registry.servers else ""
            names = ", ".join(sorted(tool.name for tool in registry)) or "none"
            raise RegistrationError(
                f"The agent {self.name!r} has a tool {each!r} that is not registered{servers}. "
                f"Correct the name, or register the tool. Registered: {names}."
            )

    def log_missing(self, registry: ToolRegistry) -> None:
        """Log the agent's tools that are not registered after the MCP servers have connected."""
        for each in self.tools:
            if isinstance(each, str) and registry.find(each) is None:
                log.warning("tool_missing", agent=self.name, tool=each)

    def _own_tools(self) -> Iterator[Tool | str]:
        """Yield the agent's tools in order. A toolkit is replaced by its tools."""
        for each in self.tools:
            if isinstance(each, Toolkit):
                yield from each.tools
            else:
                yield each

    def tools_now(self, registry: ToolRegistry) -> Mapping[str, Tool]:
        """Return the agent's tools by name, without the tools of servers that are not connected."""
        tools = []
        for each in self._own_tools():
            tool = registry.find(each) if isinstance(each, str) else each
            if tool is not None:
                tools.append(tool)
        return tools_by_name(f"The agent {self.name!r}", tools)

    def print_response(self, request: str, *, stream: bool = False) -> None:
        """Run one request outside of an application, and print the answer or the error.

        The run is recorded in memory only. Use it to try an agent out; serve it with `Application`.

        Args:
            request: The user's request.
            stream: Ignored. The answer is printed when it is complete.

        Raises:
            ConfigurationError: The agent has no model.
            RuntimeError: This thread runs an event loop. Use a `RunLauncher` there.
        """
        print(asyncio.run(_response(self, request)))  # noqa: T201 - the method's purpose


async def _response(agent: Agent, request: str) -> str | None:
    from tracer.recorder import Recorder, Spool
    from tracer.runtime.launcher import RunLauncher
    from tracer.storage.memory import recording_in_memory

    recording = recording_in_memory()
    application = Application(name=agent.name, agents=(agent,), model=agent.model)
    with TemporaryDirectory() as folder:
        async with (
            Recorder(recording, Spool(Path(folder) / "spool.sqlite3")) as recorder,
            RunLauncher(application, recorder, recording) as launcher,
        ):
            outcome = await launcher.run(request, agent=agent.name)
    return outcome.error.message if outcome.error else outcome.summary


def introduction(name: str) -> str:
    """Return the first line of an agent's system message.

    A scripted model recognizes the agent by this line.
    """
    return f"You are the agent {name!r}."


# --- Fills in the `{placeholders}` of an agent's instructions when a run starts.
#
# A placeholder is a key of the conversation's state, or one of `user_id`, `user_info`, `session_id`
# and `current_date`. It may be written `{name}` or `{{name}}`. Unknown names and other braces are
# left unchanged.
#
# `current_date` is the date in the time zone of the caller (`User.time_zone`), or, if it is
# unknown, of the application (`Application.time_zone`).
#
# A backslash escapes a known placeholder: `\{current_date}` becomes `{current_date}`. A backslash
# before anything else is left unchanged.


_PLACEHOLDER = re.compile(r"(\\?)(?:\{\{(\w+)\}\}|\{(\w+)\})")

CALLER_PLACEHOLDERS = frozenset({"user_id", "user_info"})
"""Placeholders that show the caller's identity to the model. In the values of all other
placeholders, such as session state, the caller's identity is masked."""

_BUILT_IN = CALLER_PLACEHOLDERS | {"session_id", "current_date"}


class Instructions:
    """Fills in the instructions of the agents of one run."""

    def __init__(
        self,
        run: ActiveRun,
        clock: Clock = utc_now,
        every_text: Iterable[str] = (),
        zone: tzinfo = UTC,
    ) -> None:
        """Prepare for a run, without reading anything yet.

        Args:
            run: The run.
            clock: The source of the current date.
            every_text: The instructions of all agents of the run.
            zone: The time zone of the date, if the caller has none.
        """
        self._run = run
        self._clock = clock
        self._every_text = every_text
        self._zone = zone
        self._has_started = False
        self._state: State | None = None

    async def filled(self, text: str) -> str:
        """Return instructions with all placeholders filled in.

        Session state is read once, when the run starts. Later changes by tools do not appear.

        Raises:
            MissingIdentity: The instructions have a placeholder for the caller, and the run has no
                caller.
            ToolError: The state cannot be read.
        """
        if not self._has_started:
            self._has_started = True
            if any(_names(each) - _BUILT_IN for each in self._every_text):
                # Also for agents that run later. An error is raised when an agent needs the state.
                with suppress(ToolError):
                    self._state = await self._run.state()
        if not _PLACEHOLDER.search(text):
            return text
        names = _names(text)
        values = await self._values(names)
        secrets = self._run.secrets()  # after `_values`, which may have resolved the user

        def value(match: re.Match[str]) -> str:
            escape, name = match[1], match[2] or match[3]
            if escape and (name in values or name in _BUILT_IN):
                return match[0].removeprefix(escape)
            if escape or name not in values:
                return match[0]
            text = values[name] if isinstance(values[name], str) else result_text(values[name])
            return text if name in CALLER_PLACEHOLDERS else secrets.scrub(text)

        return _PLACEHOLDER.sub(value, text)

    async def _values(self, names: set[str]) -> dict[str, Any]:
        run = self._run
        values: dict[str, Any] = {}
        if "current_date" in names:
            now = self._clock().astimezone(await self._zone_of_run())
            values["current_date"] = now.date().isoformat()
        if run.session_id is not None:
            values["session_id"] = run.session_id
        if names & CALLER_PLACEHOLDERS:
            user = await run.user()
            values["user_id"] = user.user_id
            values["user_info"] = dict(user.info)
        if names - values.keys():
            if self._state is None:
                self._state = await run.state()
            values = {**self._state, **values}
        return values

    async def _zone_of_run(self) -> tzinfo:
        """Return the caller's time zone if it is known, otherwise the application's."""
        if self._run.identity is None:
            return self._zone
        try:
            name = (await self._run.user()).time_zone
            return self._zone if name is None else time_zone(name)
        except (MissingIdentity, IdentityUnavailable):
            return self._zone  # a date alone does not require a caller
        except ValueError:
            # The name is not logged: it describes the caller.
            log.warning("time_zone_unknown", used=str(self._zone))
            return self._zone


def _names(text: str) -> set[str]:
    """Return the names whose values are needed to fill in a text.

    An escaped name is omitted if it is a built-in placeholder. Other escaped names are included,
    because only the session state shows whether they are placeholders.
    """
    matches = ((escape, one or other) for escape, one, other in _PLACEHOLDER.findall(text))
    return {name for escape, name in matches if not escape or name not in _BUILT_IN}


def without_placeholders(text: str) -> str:
    """Return instructions with `…` for each placeholder; escaped placeholders are unchanged."""
    return _PLACEHOLDER.sub(lambda match: match[0] if match[1] else "…", text)


# --- Plans: steps for agents, either written by hand or made from a template.


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a plan: a request to an agent."""

    request: str
    agent: str | None = None
    """The agent's name. None: the application's default agent."""


@dataclass(frozen=True, slots=True)
class PlanSteps:
    """Steps that are carried out in order."""

    title: str
    steps: tuple[PlanStep, ...]
    continue_on_failure: bool = False
    """Whether the steps after a failed step are carried out. If so, the plan succeeds if its last
    step does. Otherwise the plan fails with the first step that fails."""


@dataclass(frozen=True, slots=True)
class StepTemplate:
    """A step whose request has `{placeholders}` for the template's parameters."""

    request: str
    agent: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class PlanTemplate:
    """A plan with parameters, which `subplan_tool` offers to models as a tool."""

    name: str
    """The name for models and in records."""
    description: str
    """A description for the model."""
    steps: tuple[StepTemplate, ...]
    title: str | None = None
    """The title of the plans, with placeholders; by default the name."""
    parameters: type[BaseModel] | Mapping[str, Any] | None = None
    """The parameters: a pydantic model, or types by name."""
    version: str | None = None
    timeout: float | None = None
    """After how many seconds a plan of this template times out."""
    budget: BudgetLimits | None = None
    """The budget of a plan of this template. The budget of the opening plan applies, too."""
    continue_on_failure: bool = False

    def __post_init__(self) -> None:
        if not self.steps:
            raise ValueError(f"The plan template {self.name!r} has no steps. Add at least one.")
        known = set(self.typed_parameters().names.values())
        for text in (self.title or "", *(step.request for step in self.steps)):
            for placeholder in _placeholders(text):
                if placeholder not in known:
                    raise ValueError(
                        f"The plan template {self.name!r} has no parameter for the placeholder "
                        f"{{{placeholder}}}. Add it to `parameters`, or write {{{{ and }}}} for "
                        "literal braces."
                    )

    def typed_parameters(self) -> Parameters:
        """Return the parameters with their types.

        Raises:
            RegistrationError: A type cannot be read from JSON.
        """
        if isinstance(self.parameters, type):
            return parameters_from_model(self.name, self.parameters)
        types = {name: Parameter(kind) for name, kind in (self.parameters or {}).items()}
        return parameters_from_types(self.name, types)

    def filled(self, arguments: Mapping[str, Any]) -> PlanSteps:
        """Return the plan for some arguments.

        Args:
            arguments: A value for each parameter. Braces in the values are literal.
        """
        texts = {name: _in_words(value) for name, value in arguments.items()}
        return PlanSteps(
            title=self.title.format_map(texts) if self.title else self.name,
            steps=tuple(
                PlanStep(step.request.format_map(texts), step.agent) for step in self.steps
            ),
            continue_on_failure=self.continue_on_failure,
        )


def _in_words(value: Any) -> str:
    """Format a value for use in a sentence. Strings and times have no quotes."""
    if value is None:
        return "none"
    text = result_text(value)
    if isinstance(value, str) or not text.startswith('"'):
        return text
    return str(json.loads(text))


def _placeholders(text: str) -> list[str]:
    """Return a text's placeholders as written.

    Conversions such as `!r` are included, so that the caller can reject them.
    """
    return [
        name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
        for _, name, spec, conversion in string.Formatter().parse(text)
        if name is not None
    ]


# --- `Application` is the agents of a process with their resources. `ApplicationRun` is one run.

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
    receives. 0: no history."""
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

    def __init__(
        self,
        application: Application,
        recorder: EventRecorder,
        resources: ToolResources,
        new_id: IdSource,
        parameters: RunParameters,
    ) -> None:
        """Start a run.

        Args:
            application: The application whose agents run.
            recorder: See `ActiveRun`.
            resources: See `ActiveRun`.
            new_id: See `ActiveRun`.
            parameters: See `ActiveRun`.
        """
        super().__init__(recorder, resources, new_id, parameters)
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


# --- The history of a session: the messages and answers of its earlier runs.
#
# The history is read from the records of those runs. So masking, deletion and export of the records
# also apply to the history. Only the agent that answers a user's message receives the history;
# steps of predefined plans and of sub-plans do not.


class ExchangeReader(Protocol):
    """The part of a `TraceReader` that reads a history."""

    async def list_exchanges(self, root_plan_ids: Sequence[UUID]) -> list[Exchange]:
        """Return the request and the answer of the given runs, if they have finished."""


async def join_session(
    run: ApplicationRun, reader: ExchangeReader, *, reads: bool = True
) -> list[Message]:
    """Add a run to its session, and return the session's earlier messages, oldest first.

    The result has at most `Application.history_characters` characters. The oldest exchanges are
    omitted first, each as a whole.

    Args:
        run: The run, which has a session.
        reader: Reads the earlier runs.
        reads: Whether to read the history. If false, the run is added and no messages are returned.

    Raises:
        ToolError: The history cannot be read, or the caller cannot be identified.
    """
    limit = run.application.history_characters
    try:
        earlier_runs = await run.join_conversation()
        return _newest(await reader.list_exchanges(earlier_runs), limit) if reads else []
    except StoreUnavailable as error:
        raise ToolUnavailable(f"The session's history cannot be read. {error}") from error


def _newest(exchanges: Sequence[Exchange], limit: int) -> list[Message]:
    """Return the messages of the newest exchanges that together fit in `limit` characters."""
    messages: list[Message] = []
    for exchange in reversed(exchanges):
        pair = [Message("user", unescape(exchange.request), is_history=True)]
        if exchange.answer:
            pair.append(Message("assistant", unescape(exchange.answer), is_history=True))
        limit -= sum(len(each.content) for each in pair)
        if limit < 0:
            break
        messages = pair + messages
    return messages


# --- The planner: an agent that turns a request into the steps of a plan.

PLANNER = "planner"
"""The planner's name in the records."""

MAX_STEPS = 50
"""A longer plan is rejected, because a model that writes one is probably in a loop."""

_INSTRUCTIONS = """\
Turn the user's request into a plan: the fewest steps that fulfil it, in order. Each step goes to
one agent. The agent sees the step's request and the results of earlier steps, but not the user's
request, so put into the step whatever the agent needs to know. The last step's answer goes to the
user.

The agents:
{agents}

Answer with one JSON object and nothing else:
{{"steps": [{{"agent": "NAME", "request": "WHAT TO DO"}}]}}"""

_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class _AnswerStep(BaseModel):
    model_config = ConfigDict(extra="ignore")

    request: str = Field(min_length=1)
    agent: str | None = None


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    steps: list[_AnswerStep] = Field(min_length=1, max_length=MAX_STEPS)


def planner_agent(application: Application) -> Agent:
    """Return the agent that makes plans for an application; `read_plan` reads its answer."""
    agents = "\n".join(
        # Without the values of placeholders: the planner must not learn who the caller is.
        f"- {each.name}: {each.description or without_placeholders(each.instructions)}"
        for each in application.agents
    )
    instructions = _INSTRUCTIONS.format(agents=agents)
    return Agent(
        name=PLANNER,
        instructions=f"{instructions}\n\n{application.planner_instructions}".strip(),
        max_rounds=3,
    )


def read_plan(answer: str, agents: Collection[str]) -> tuple[PlanStep, ...]:
    """Return the steps in a planner's answer.

    Args:
        answer: JSON, with or without a Markdown code block around it.
        agents: The names of the agents that steps may be assigned to.

    Raises:
        PlanningError: The answer is not a plan, or names an unknown agent. The message is for the
            planner.
    """
    fenced = _FENCED.search(answer)
    try:
        plan = _Answer.model_validate_json(fenced[1] if fenced else answer)
    except ValidationError as error:
        details = error.errors(include_input=False, include_context=False, include_url=False)
        where = "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'answer'}: {each['msg']}" for each in details[:5]
        )
        raise PlanningError(
            f'This is not a valid plan ({where}). Answer with one JSON object {{"steps": […]}} and '
            "nothing else."
        ) from None
    for step in plan.steps:
        if step.agent is not None and step.agent not in agents:
            raise PlanningError(
                f"There is no agent {step.agent!r}. Plan again, and use only the agents "
                f"{', '.join(sorted(agents))}."
            )
    return tuple(PlanStep(step.request, step.agent) for step in plan.steps)
