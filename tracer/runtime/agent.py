"""Agents, which carry out the steps of plans."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tracer.errors import RegistrationError
from tracer.logs import get_logger
from tracer.runtime.chat_model import ChatModel
from tracer.tools.definition.hidden_parameters import CallingAgent
from tracer.tools.definition.hooks import hooks_of
from tracer.tools.definition.tool import HookFunction, Tool
from tracer.tools.definition.toolkit import Toolkit
from tracer.tools.registry import ToolRegistry, tools_by_name

log = get_logger(__name__)


@dataclass(frozen=True, eq=False)
class Agent(CallingAgent):
    """A model with instructions and tools."""

    name: str = "agent"
    instructions: str = ""
    """The agent's purpose and way of working, in the system message for the model. `{placeholders}`
    are filled in at each run (`tracer.runtime.instructions`) unless `resolve_in_context` is
    false."""
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
    (`tracer.tools.definition.hooks`)."""
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
    from tracer.recorder.recorder import Recorder
    from tracer.recorder.spool import Spool
    from tracer.runtime.application import Application
    from tracer.runtime.launcher import RunLauncher
    from tracer.storage.memory.recording import recording_in_memory

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
