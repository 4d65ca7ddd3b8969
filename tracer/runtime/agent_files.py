"""Read agents from a file, `agents.yaml`.

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
    """One agent of a file; see the fields of `Agent`."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    description: str = ""
    instructions: str = ""
    tools: list[str] = []
    """Names in the application's registry."""
    model: str | None = None
    """A name in the `models` of `read_agents`."""
    max_rounds: PositiveInt = Agent.max_rounds
    max_parallel: PositiveInt = Agent.max_parallel
    resolve_in_context: bool = Agent.resolve_in_context
    hooks: list[str] = []
    """Names in the `hooks` of `read_agents`, or `module:name`."""


def read_agents(
    path: Path | Traversable,
    *,
    models: Mapping[str, ChatModel] | None = None,
    hooks: Mapping[str, Callable[..., Any]] | None = None,
) -> tuple[Agent, ...]:
    """Read agents from a YAML file, a mapping from each agent's name to its fields.

    Args:
        path: The file.
        models: The models that agents may name. An agent without a model uses the
            application's model.
        hooks: The hooks that agents may name, in addition to `module:name`.

    Returns:
        The agents, in the order of the file.

    Raises:
        RegistrationError: The file cannot be read or has errors. The message lists all of them.
    """
    problems = DefinitionProblems(path.name)
    agents: list[Agent] = []
    for name, content in _mapping(path, problems).items():
        if not isinstance(name, str):
            problems.add(str(name), "the name of an agent must be text: put it in quotes.")
            continue
        if not isinstance(content, dict):
            problems.add(
                name, "an agent must be a mapping, such as `tools: [record_blood_pressure]`."
            )
            continue
        entry = problems.read(name, AgentEntry, {str(key): each for key, each in content.items()})
        if entry is not None:
            agent = _agent(name, entry, models or {}, hooks or {}, problems)
            agents += [] if agent is None else [agent]
    problems.raise_if_any()
    return tuple(agents)


def _agent(
    name: str,
    entry: AgentEntry,
    models: Mapping[str, ChatModel],
    hooks: Mapping[str, Callable[..., Any]],
    problems: DefinitionProblems,
) -> Agent | None:
    resolved = [problems.resolve(f"{name}.hooks", each, hooks) for each in entry.hooks]
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
            hooks=[each for each in resolved if each is not None],
            resolve_in_context=entry.resolve_in_context,
        )
    except RegistrationError as error:
        problems.add(name or "''", str(error))
        return None


def _mapping(path: Path | Traversable, problems: DefinitionProblems) -> dict[Any, Any]:
    """Return the content of a YAML file, and add a problem for each repeated key.

    Raises:
        RegistrationError: The file cannot be read, is not YAML, or is not a mapping.
    """
    try:
        loader = _UniqueKeys(path.read_text(encoding="utf-8"))
        try:
            content = loader.get_single_data()
        finally:
            loader.dispose()
    except (OSError, UnicodeDecodeError) as error:
        raise RegistrationError(f"{path.name} cannot be read: {error}.") from error
    except yaml.MarkedYAMLError as error:
        # Only the problem: the text of the error quotes the file, which may contain secrets.
        where = f", {_location(error.problem_mark)}" if error.problem_mark else ""
        raise RegistrationError(f"{path.name} is not valid YAML: {error.problem}{where}.") from None
    except yaml.YAMLError as error:
        raise RegistrationError(f"{path.name} is not valid YAML: {type(error).__name__}.") from None
    if not isinstance(content, dict):
        raise RegistrationError(f"{path.name} must be a mapping from agents' names to agents.")
    for location, key in loader.repeated:
        problems.add(location, f"the key {key!r} is repeated: remove one.")
    return content


class _UniqueKeys(yaml.SafeLoader):
    """A YAML loader that collects repeated keys. Its base class silently uses the last value."""

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
                    self.repeated.append((_location(key.start_mark), key.value))
                seen.add((key.tag, key.value))
        return node


def _location(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"
