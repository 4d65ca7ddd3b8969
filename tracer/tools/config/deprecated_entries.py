"""Entries of `tools.toml` as they were written before: in the names that hold today."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
