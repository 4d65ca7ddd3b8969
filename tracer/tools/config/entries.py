"""The entries of `tools.toml` for each kind of tool, with those that are deprecated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, PositiveFloat, PositiveInt

from tracer.tools.definition.tool import Tool
from tracer.tools.executors.rest.config import RestConfig


def _of_object(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") != "object":
        raise ValueError('has to be the schema of an object: begin with type = "object"')
    return schema


Parameters = Annotated[dict[str, Any], AfterValidator(_of_object)]
"""The JSON Schema of a tool's arguments."""


class ToolEntry(BaseModel):
    """What may be said of any tool that runs here; see the fields of `Tool`."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    name: str
    description: str | None = None
    """Unless given, from the docstring, where there is one."""
    parameters: Parameters | None = None
    """Unless given, from the signature, where there is one."""
    tags: list[str] = []
    timeout: PositiveFloat | None = None
    max_attempts: PositiveInt = Tool.max_attempts
    concurrency: str = Tool.concurrency
    max_parallel: PositiveInt | None = None
    hooks: list[str] = []
    """Names in the functions that the program hands to the reader, or `module:name`."""
    hidden: dict[str, Literal["token", "user_id"]] = {}
    """Parameters that the runtime fills, by name: `{ token_id = "token" }`."""


class StatelessEntry(ToolEntry):
    """A function."""

    type: Literal["STATELESS"]
    function: str | None = None
    """A name in the functions that the program hands to the reader, or `module:name`. Unless
    given, the tool's own name in those functions."""


class StatefulEntry(ToolEntry):
    """An object for each conversation."""

    type: Literal["STATEFUL"]
    create: str | None = None
    """What makes it; named as a `StatelessEntry.function` is."""


class RestEntry(ToolEntry):
    """An HTTP request."""

    type: Literal["REST"]
    description: str
    parameters: Parameters
    config: RestConfig


class McpEntry(BaseModel):
    """One tool of an MCP server; what it does and takes, the server says."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    name: str
    type: Literal["MCP"]
    config: dict[str, Any]
    """The fields of a `McpConfig`; it is read together with the server's other tools."""


ENTRIES: dict[str, type[ToolEntry | McpEntry]] = {
    "STATELESS": StatelessEntry,
    "STATEFUL": StatefulEntry,
    "REST": RestEntry,
    "MCP": McpEntry,
}
"""What is said of a tool, by its `type`."""


OLD_TYPES = {"BUILTIN": "STATELESS", "NATIVE": "STATEFUL"}

OLD_SETTINGS = {
    "REST": {"baseUrl": "base_url"},
    "MCP": {"serverName": "name", "serverUrl": "url"},
}
"""Keys of `config`, by the tool's type."""

Tell = Callable[[str, str], None]
"""Receives a place and what is to be said of it."""


def in_present_names(
    place: str, entry: dict[str, Any], deprecated: Tell, wrong: Tell
) -> dict[str, Any]:
    """Return an entry in the names of today.

    Args:
        place: Where the entry stands.
        entry: As it was written; stays as it is.
        deprecated: Told what was understood, and how to write it.
        wrong: Told what can't be understood.
    """
    entry = dict(entry)
    kind = entry.get("type")
    if isinstance(kind, str) and kind in OLD_TYPES:
        entry["type"] = OLD_TYPES[kind]
        deprecated(
            f"{place}.type", f'{kind} is {entry["type"]} now: write type = "{entry["type"]}"'
        )
    if "id" in entry:
        del entry["id"]
        deprecated(f"{place}.id", "a tool is known by its name: leave it out")
    is_old = _without_metadata(place, entry, deprecated, wrong)
    if entry.get("type") == "MCP":
        for name in ("description", "parameters"):
            if entry.pop(name, None) is not None:
                deprecated(f"{place}.{name}", "the server says it: leave it out")
    config = entry.get("config")
    if isinstance(config, dict):
        entry["config"] = _settings(f"{place}.config", entry, config, is_old, deprecated, wrong)
    return entry


def _without_metadata(place: str, entry: dict[str, Any], deprecated: Tell, wrong: Tell) -> bool:
    """Move what stands in `metadata` to its present place; return whether there was a config."""
    metadata = entry.pop("metadata", {})
    if not isinstance(metadata, dict):
        wrong(f"{place}.metadata", "has to be a table; better, leave it out.")
        return False
    for name, value in metadata.items():
        at = f"{place}.metadata.{name}"
        now = {"customFields": "config", "executor": "create", "tags": "tags"}.get(name)
        if now is None:
            deprecated(at, "is ignored: leave it out, or make a tag of it")
        elif now in entry:
            wrong(at, f"stands there as {now!r} too: keep that.")
        else:
            entry[now] = value
            deprecated(at, f"is {now!r} now: write it there, beside the tool's name")
    return "customFields" in metadata


def _settings(
    place: str,
    entry: dict[str, Any],
    config: dict[str, Any],
    is_old: bool,
    deprecated: Tell,
    wrong: Tell,
) -> dict[str, Any]:
    config = dict(config)
    for old, now in OLD_SETTINGS.get(str(entry.get("type")), {}).items():
        if old not in config:
            continue
        is_old = True
        value = config.pop(old)
        if now in config:
            wrong(f"{place}.{old}", f"stands there as {now!r} too: keep that.")
        else:
            config[now] = value
            deprecated(f"{place}.{old}", f"is {now!r} now: write that")
    if is_old and "timeout" in config:
        # Written when it was not said which: a guess would be wrong by a factor of a thousand.
        del config["timeout"]
        where = "here" if entry.get("type") == "MCP" else "beside the tool's name"
        wrong(
            f"{place}.timeout",
            f"may mean seconds or milliseconds: write it {where}, in seconds, and the other keys "
            "in their present names.",
        )
    return config
