"""Agents in a file: `agents.yaml` says which agent has which tools, instructions and model.

nurse:
  description: records blood pressure
  instructions: Record what you are told. The patient is {user_info}.
  tools:
    - record_blood_pressure
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, PositiveInt

from tracer.errors import RegistrationError
from tracer.runtime.agent import Agent
from tracer.runtime.chat_model import ChatModel
from tracer.tools.config.problems import DefinitionProblems, unknown_name


class AgentEntry(BaseModel):
    """What a file says of one agent; see the fields of `Agent`."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    description: str = ""
    instructions: str = ""
    tools: list[str] = []
    """Names in the application's registry."""
    model: str | None = None
    """A name in the models that the program hands to `read_agents`."""
    max_rounds: PositiveInt = Agent.max_rounds
    max_parallel: PositiveInt = Agent.max_parallel
    resolve_in_context: bool = Agent.resolve_in_context
    hooks: list[str] = []
    """Names in the hooks that the program hands to `read_agents`, or `module:name`."""


def read_agents(
    path: Path | Traversable,
    *,
    models: Mapping[str, ChatModel] | None = None,
    hooks: Mapping[str, Callable[..., Any]] | None = None,
) -> tuple[Agent, ...]:
    """Read agents from a YAML file: a mapping from each agent's name to what it is.

    Args:
        path: The file.
        models: The models that agents may name; without a name, an agent has the application's.
        hooks: The hooks that agents may name; `module:name` does too.

    Returns:
        The agents, in the file's order.

    Raises:
        RegistrationError: The file can't be read, or says what can't be; all problems at once.
    """
    problems = DefinitionProblems(path.name)
    agents: list[Agent] = []
    for name, content in _mapping(path, problems).items():
        if not isinstance(name, str):
            problems.add(str(name), "an agent's name has to be text: put it in quotes.")
            continue
        if not isinstance(content, dict):
            problems.add(name, "an agent is a mapping, such as `tools: [record_blood_pressure]`.")
            continue
        entry = problems.read(name, AgentEntry, {str(key): each for key, each in content.items()})
        if entry is not None:
            agent = _agent(name, entry, models or {}, hooks or {}, problems)
            agents += [] if agent is None else [agent]
    problems.tell()
    return tuple(agents)


def _agent(
    name: str,
    entry: AgentEntry,
    models: Mapping[str, ChatModel],
    hooks: Mapping[str, Callable[..., Any]],
    problems: DefinitionProblems,
) -> Agent | None:
    found = [problems.named(f"{name}.hooks", each, hooks) for each in entry.hooks]
    if entry.model is not None and entry.model not in models:
        problems.add(f"{name}.model", unknown_name("model", entry.model, models))
        return None
    try:
        return Agent(
            name=name,
            instructions=entry.instructions,
            tools=tuple(entry.tools),
            description=entry.description,
            model=None if entry.model is None else models[entry.model],
            max_rounds=entry.max_rounds,
            max_parallel=entry.max_parallel,
            hooks=[each for each in found if each is not None],
            resolve_in_context=entry.resolve_in_context,
        )
    except RegistrationError as error:
        problems.add(name or "''", str(error))
        return None


def _mapping(path: Path | Traversable, problems: DefinitionProblems) -> dict[Any, Any]:
    """Return what a YAML file holds; what stands in it twice is a problem.

    Raises:
        RegistrationError: It can't be read, or is no mapping.
    """
    try:
        loader = _UniqueKeys(path.read_text(encoding="utf-8"))
        try:
            content = loader.get_single_data()
        finally:
            loader.dispose()
    except (OSError, UnicodeDecodeError) as error:
        raise RegistrationError(f"{path.name} can't be read: {error}.") from error
    except yaml.MarkedYAMLError as error:
        # Not the whole error, which quotes the file.
        where = f", {_place(error.problem_mark)}" if error.problem_mark else ""
        raise RegistrationError(f"{path.name} is no YAML: {error.problem}{where}.") from None
    except yaml.YAMLError as error:
        raise RegistrationError(f"{path.name} is no YAML: {type(error).__name__}.") from None
    if not isinstance(content, dict):
        raise RegistrationError(f"{path.name} has to be a mapping from agents' names to agents.")
    for place, key in loader.repeated:
        problems.add(place, f"{key!r} stands there for a second time: keep one.")
    return content


class _UniqueKeys(yaml.SafeLoader):
    """Notes the keys that a mapping has twice, of which YAML's own loader takes the last."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[tuple[str, str]] = []

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        assert node is not None
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    self.repeated.append((_place(key.start_mark), key.value))
                seen.add((key.tag, key.value))
        return node


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"
