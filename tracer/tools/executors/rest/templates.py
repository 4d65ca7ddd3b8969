"""Templates: text that contains `{argument}`, and structures of such text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Any

ABSENT = object()
"""The value of a template that is a single placeholder, if the argument is absent."""


def placeholders(template: object) -> frozenset[str]:
    """Return the names of the arguments that a template, or a structure of templates, uses.

    Raises:
        ValueError: A brace is unmatched, or a placeholder is more than a name.
    """
    return frozenset(name for text in _texts(template) for _, name in _parts(text) if name)


def filled(template: Any, arguments: Mapping[str, Any]) -> Any:
    """Return a template with its placeholders replaced by arguments.

    If a text is a single placeholder, the result is the argument itself, of any type, or `ABSENT`
    if the argument is absent. An absent argument is omitted from mappings and lists. Within other
    text it becomes empty text.
    """
    if isinstance(template, str):
        parts = list(_parts(template))
        if len(parts) == 1 and not parts[0][0] and parts[0][1]:
            return arguments.get(parts[0][1], ABSENT)
        return filled_text(template, arguments)
    if isinstance(template, Mapping):
        items = {name: filled(each, arguments) for name, each in template.items()}
        return {name: each for name, each in items.items() if each is not ABSENT}
    if isinstance(template, list):
        return [
            each for each in (filled(each, arguments) for each in template) if each is not ABSENT
        ]
    return template


def filled_text(template: str, arguments: Mapping[str, Any]) -> str:
    """Return a template with its placeholders replaced by text. Absent arguments become empty."""
    return "".join(
        before + as_text(arguments.get(name) if name else None) for before, name in _parts(template)
    )


def as_text(value: Any) -> str:
    """Return an argument as text: strings unchanged, empty text for null, otherwise JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _parts(template: str) -> Iterator[tuple[str, str]]:
    """Yield each piece of plain text with the name of the placeholder that follows it.

    The name is empty if no placeholder follows.
    """
    for before, name, form, conversion in Formatter().parse(template):
        if name is not None and (not name or form or conversion):
            raise ValueError(
                f"{template!r}: write {{argument}} for an argument, and {{{{ for a literal brace"
            )
        yield before, name or ""


def _texts(template: object) -> Iterator[str]:
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping):
        for each in template.values():
            yield from _texts(each)
    elif isinstance(template, list):
        for each in template:
            yield from _texts(each)
