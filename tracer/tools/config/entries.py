"""The entries of `tools.toml` for each kind of tool, and the upgrade of deprecated entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, PositiveFloat, PositiveInt

from tracer.tools.definition.tool import Concurrency, Tool
from tracer.tools.executors.rest.config import RestConfig


def _object_schema(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type") != "object":
        raise ValueError('must be the schema of an object: begin with type = "object"')
    return schema


Parameters = Annotated[dict[str, Any], AfterValidator(_object_schema)]
"""The JSON Schema of a tool's arguments."""


class ToolEntry(BaseModel):
    """The options that all kinds of tools have; see the fields of `Tool`."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    name: str
    description: str | None = None
    """By default, the docstring of the function, without its sections."""
    parameters: Parameters | None = None
    """By default, derived from the signature of the function."""
    tags: list[str] = []
    timeout: PositiveFloat | None = None
    max_attempts: PositiveInt = Tool.max_attempts
    concurrency: Concurrency = Tool.concurrency
    max_parallel: PositiveInt | None = None
    hooks: list[str] = []
    """Each is a name in the `functions` of `read_tools`, or `module:name`."""
    hidden: dict[str, Literal["token", "user_id"]] = {}
    """Parameters that the runtime fills, by name: `{ token_id = "token" }`."""


class StatelessEntry(ToolEntry):
    """A stateless tool: a function."""

    type: Literal["STATELESS"]
    function: str | None = None
    """A name in the `functions` of `read_tools`, or `module:name`. By default, the entry of
    `functions` that has the tool's name."""


class StatefulEntry(ToolEntry):
    """A stateful tool: an object with one instance for each conversation."""

    type: Literal["STATEFUL"]
    create: str | None = None
    """The function or class that makes the object; see `StatelessEntry.function`."""


class RestEntry(ToolEntry):
    """A REST tool, which sends an HTTP request."""

    type: Literal["REST"]
    description: str
    parameters: Parameters
    config: RestConfig


class McpEntry(BaseModel):
    """One tool of an MCP server, which supplies the description and the parameters."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    name: str
    type: Literal["MCP"]
    config: dict[str, Any]
    """Fields of `McpConfig`. They are merged with the `config` of the server's other tools."""


ENTRIES: dict[str, type[ToolEntry | McpEntry]] = {
    "STATELESS": StatelessEntry,
    "STATEFUL": StatefulEntry,
    "REST": RestEntry,
    "MCP": McpEntry,
}
"""Maps the `type` of a tool's entry to the pydantic model of the entry."""


DEPRECATED_TYPES = {"BUILTIN": "STATELESS", "NATIVE": "STATEFUL"}

DEPRECATED_SETTINGS = {
    "REST": {"baseUrl": "base_url"},
    "MCP": {"serverName": "name", "serverUrl": "url"},
}
"""Deprecated keys of `config` and their present names, by the tool's type."""

Report = Callable[[str, str], None]
"""Receives a location in the file, and a message about it."""


def upgrade_entry(
    location: str, entry: dict[str, Any], on_deprecation: Report, on_error: Report
) -> dict[str, Any]:
    """Return an entry with deprecated names replaced by the present ones.

    Args:
        location: The entry's location in the file.
        entry: The entry. It is not changed.
        on_deprecation: Receives each deprecated name and what to write instead.
        on_error: Receives a message for each entry that cannot be upgraded.
    """
    entry = dict(entry)
    kind = entry.get("type")
    if isinstance(kind, str) and kind in DEPRECATED_TYPES:
        entry["type"] = DEPRECATED_TYPES[kind]
        on_deprecation(f"{location}.type", f'{kind} is deprecated: write type = "{entry["type"]}"')
    if "id" in entry:
        del entry["id"]
        on_deprecation(f"{location}.id", "is not used, because a tool is identified by its name")
    is_old = _without_metadata(location, entry, on_deprecation, on_error)
    if entry.get("type") == "MCP":
        for name in ("description", "parameters"):
            if entry.pop(name, None) is not None:
                on_deprecation(f"{location}.{name}", "is not used, because the server supplies it")
    config = entry.get("config")
    if isinstance(config, dict):
        entry["config"] = _upgrade_config(
            f"{location}.config", entry, config, is_old, on_deprecation, on_error
        )
    return entry


def _without_metadata(
    location: str, entry: dict[str, Any], on_deprecation: Report, on_error: Report
) -> bool:
    """Move the contents of the deprecated table `metadata` to the keys that replace them.

    Return whether `metadata` contained `customFields`, which is now `config`.
    """
    metadata = entry.pop("metadata", {})
    if not isinstance(metadata, dict):
        on_error(f"{location}.metadata", "must be a table, and is deprecated: remove it.")
        return False
    for name, value in metadata.items():
        old_location = f"{location}.metadata.{name}"
        present = {"customFields": "config", "executor": "create", "tags": "tags"}.get(name)
        if present is None:
            on_deprecation(old_location, "is ignored: remove it, or write a tag instead")
        elif present in entry:
            on_error(old_location, f"repeats {present!r} of the tool: remove it.")
        else:
            entry[present] = value
            on_deprecation(old_location, f"is deprecated: write {present!r} in the tool's table")
    return "customFields" in metadata


def _upgrade_config(
    location: str,
    entry: dict[str, Any],
    config: dict[str, Any],
    is_old: bool,
    on_deprecation: Report,
    on_error: Report,
) -> dict[str, Any]:
    config = dict(config)
    for old, present in DEPRECATED_SETTINGS.get(str(entry.get("type")), {}).items():
        if old not in config:
            continue
        is_old = True
        value = config.pop(old)
        if present in config:
            on_error(f"{location}.{old}", f"repeats {present!r}: remove it.")
        else:
            config[present] = value
            on_deprecation(f"{location}.{old}", f"is deprecated: write {present!r}")
    if is_old and "timeout" in config:
        # Earlier versions did not define the unit. A guess could be wrong by a factor of 1,000.
        del config["timeout"]
        where = "here" if entry.get("type") == "MCP" else "in the tool's table"
        on_error(
            f"{location}.timeout",
            f"may mean seconds or milliseconds: write it {where}, in seconds, and the other keys "
            "with their present names.",
        )
    return config
