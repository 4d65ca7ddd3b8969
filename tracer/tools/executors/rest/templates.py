"""Templates: text that contains `{argument}`, and structures of such text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

ABSENT = object()
"""The value of a template that is a single placeholder, if the argument is absent."""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}!:]+)\}")
"""Matches a placeholder, whose name is a group, or a literal brace."""


def placeholders(template: object) -> frozenset[str]:
    """Return the names of the arguments that a template, or a structure of templates, uses.

    Raises:
        ValueError: A brace is unmatched, or a placeholder is more than a name.
    """
    if isinstance(template, str):
        if set("{}") & set(_PLACEHOLDER.sub("", template)):
            raise ValueError(
                f"{template!r}: write {{argument}} for an argument, and {{{{ for a literal brace"
            )
        return frozenset(filter(None, _PLACEHOLDER.findall(template)))
    if isinstance(template, Mapping):
        template = list(template.values())
    return frozenset().union(*map(placeholders, template if isinstance(template, list) else ()))


def filled(template: Any, arguments: Mapping[str, Any]) -> Any:
    """Return a template with its placeholders replaced by arguments.

    If a text is a single placeholder, the result is the argument itself, of any type, or `ABSENT`
    if the argument is absent. An absent argument is omitted from mappings and lists. Within other
    text it becomes empty text.
    """
    if isinstance(template, str):
        whole = _PLACEHOLDER.fullmatch(template)
        if whole and whole[1]:
            return arguments.get(whole[1], ABSENT)
        return _PLACEHOLDER.sub(
            lambda each: as_text(arguments.get(each[1])) if each[1] else each[0][0], template
        )
    if isinstance(template, Mapping):
        items = {name: filled(each, arguments) for name, each in template.items()}
        return {name: each for name, each in items.items() if each is not ABSENT}
    if isinstance(template, list):
        return [each for each in (filled(e, arguments) for e in template) if each is not ABSENT]
    return template


def as_text(value: Any) -> str:
    """Return an argument as text: strings unchanged, empty text for null, otherwise JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
