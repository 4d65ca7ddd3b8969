"""Toolkits: related tools, with their instructions and their session state.

class CustomerTools(Toolkit):
    def __init__(self) -> None:
        super().__init__(instructions="Look customers up before you create them.")
        self.register(self.find_customer)

    def find_customer(self, customer_id: str) -> str:
        \"\"\"Find a customer.\"\"\"

agent = Agent("clerk", "Help customers.", tools=(CustomerTools(),))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self, Unpack

from tracer.errors import RegistrationError
from tracer.tools.definition.tool import HookFunction, Tool, ToolOptions, tool


class Toolkit:
    """Related tools. Derive a class, and register its methods in `__init__`.

    One instance serves all callers: every run and user of every agent that has the toolkit, in
    parallel and from several threads. Do not store a caller's data in its attributes. Use the
    session state (`tracer.tools.definition.session_state`) for data of a conversation, and a
    stateful tool (`tracer.tools.executors.stateful.executor`) for an object that a conversation
    needs, such as a connection.
    """

    def __init__(
        self,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        *,
        instructions: str = "",
        tool_hooks: Sequence[HookFunction] = (),
        session_state: Mapping[str, Any] | None = None,
    ) -> None:
        """Register tools; more can be added with `register`.

        Args:
            tools: Tools or functions; see `register`.
            instructions: Added to the instructions of each agent that has the toolkit in its
                `tools`.
            tool_hooks: Hooks around each of its tools, outside of the tool's own.
            session_state: Added to the state that a conversation begins with. The
                application's own `session_state` takes precedence.

        Raises:
            RegistrationError: See `register`.
        """
        self.instructions = instructions
        self.tool_hooks = tool_hooks
        self.session_state: Mapping[str, Any] = dict(session_state or {})
        self._tools: dict[str, Tool] = {}
        for each in tools:
            self.register(each)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, in the order in which they were registered."""
        return tuple(self._tools.values())

    def register(
        self, function: Tool | Callable[..., Any], /, **options: Unpack[ToolOptions]
    ) -> Tool:
        """Add a tool, and return it.

        Args:
            function: A tool, a function, or a method of this toolkit. `self` is not shown to the
                model.
            options: Options of the tool; see `tracer.tools.definition.tool.tool`.

        Raises:
            RegistrationError: The toolkit has a tool of this name, the function cannot be a tool,
                or `function` is a tool already and options were given.
        """
        if not isinstance(function, Tool):
            new = tool(**options)(function)
        elif options:
            raise RegistrationError(
                f"The options {', '.join(options)} cannot be set on the existing tool "
                f"{function.name!r}. Set them in its definition."
            )
        else:
            new = function
        if new.name in self._tools:
            raise RegistrationError(
                f"{type(self).__name__} has two tools named {new.name!r}. Rename one."
            )
        if self.tool_hooks:
            new = replace(new, tool_hooks=(*self.tool_hooks, *new.tool_hooks))
        self._tools[new.name] = new
        return new

    def bind(self, **values: Any) -> Self:
        """Return a copy of the toolkit whose tools are bound; see `Tool.bind`.

        Each tool is bound to the values of the parameters that it has.

        Raises:
            RegistrationError: No tool has one of the parameters.
        """
        for name in values:
            if not any(each.has_parameter(name) for each in self.tools):
                raise RegistrationError(
                    f"No tool of {type(self).__name__} has a parameter {name!r} to bind."
                )
        bound = copy(self)
        bound._tools = {
            each.name: each.bind(**{n: v for n, v in values.items() if each.has_parameter(n)})
            for each in self.tools
        }
        return bound


def common_state(toolkits: Iterable[Toolkit]) -> dict[str, Any]:
    """Return the merged initial session state of several toolkits.

    Raises:
        RegistrationError: Two toolkits set a key to different values.
    """
    state: dict[str, Any] = {}
    owners: dict[str, str] = {}
    for toolkit in toolkits:
        name = type(toolkit).__name__
        for key, value in toolkit.session_state.items():
            if key in state and state[key] != value:
                raise RegistrationError(
                    f"The toolkits {owners[key]} and {name} set {key!r} in the session state "
                    "to different values. Rename the key in one of them."
                )
            state[key] = value
            owners[key] = name
    return state
