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
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, PositiveInt, Strict, TypeAdapter

from tracer.errors import RegistrationError
from tracer.runtime.application import Agent
from tracer.runtime.chat_model import ChatModel
from tracer.tools.config import Named, parsed


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
    session_state: dict[str, Any] = {}
    tool_hooks: list[Named] = []
    """Names in the `tool_hooks` of `read_agents`, or `module:name`."""


_AGENTS = TypeAdapter(dict[Annotated[str, Strict()], AgentEntry])


def read_agents(
    path: Path | Traversable,
    *,
    models: Mapping[str, ChatModel] | None = None,
    tool_hooks: Mapping[str, Callable[..., Any]] | None = None,
) -> tuple[Agent, ...]:
    """Read agents from a YAML file, a mapping from each agent's name to its fields.

    Args:
        path: The file.
        models: The models that agents may name. An agent without a model uses the
            application's model.
        tool_hooks: The hooks that agents may name, in addition to `module:name`.

    Returns:
        The agents, in the order of the file.

    Raises:
        RegistrationError: The file cannot be read or has errors. The message lists them.
    """
    models = models or {}
    agents: list[Agent] = []
    content, functions = _content(path), tool_hooks or {}
    for name, entry in parsed(path.name, _AGENTS, content, functions=functions).items():
        if entry.model is not None and entry.model not in models:
            raise RegistrationError(
                f"{path.name}: the agent {name!r} names the unknown model {entry.model!r}. Choose "
                f"from: {', '.join(sorted(models)) or 'none'}."
            )
        fields = {key: getattr(entry, key) for key in AgentEntry.model_fields}
        model = None if entry.model is None else models[entry.model]
        agents.append(Agent(name=name, **{**fields, "tools": tuple(entry.tools), "model": model}))
    return tuple(agents)


def _content(path: Path | Traversable) -> object:
    """Return the content of a YAML file.

    Raises:
        RegistrationError: The file cannot be read, is not YAML, or repeats a key.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _UniqueKeys)
    except (OSError, UnicodeDecodeError) as error:
        raise RegistrationError(f"{path.name} cannot be read: {error}.") from error
    except yaml.MarkedYAMLError as error:
        # Only the problem: the text of the error quotes the file, which may contain secrets.
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise RegistrationError(f"{path.name} is not valid YAML: {error.problem}{where}.") from None
    except yaml.YAMLError as error:
        raise RegistrationError(f"{path.name} is not valid YAML: {type(error).__name__}.") from None


class _UniqueKeys(yaml.SafeLoader):
    """A YAML loader that rejects repeated keys. Its base class silently uses the last value."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        assert node is not None
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    problem = f"the key {key.value!r} is repeated"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return node
