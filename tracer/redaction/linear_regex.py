r"""Regular expressions that take linear time, even for hostile expressions and texts.

The engine is RE2 (https://github.com/google/re2/wiki/Syntax). RE2 has no look-around and no
backreferences. `\d`, `\w`, `\s` and `\b` match ASCII characters only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import re2  # type: ignore[import-untyped]  # google-re2 has no type hints


class LinearRegex:
    """A compiled regular expression."""

    def __init__(self, expression: str, *, captures: bool = True) -> None:
        """Compile an expression.

        Args:
            expression: An expression in RE2's syntax.
            captures: Whether groups `(…)` capture. If not, `spans` yields the spans of whole
                matches.

        Raises:
            ValueError: The expression is invalid, or RE2 does not support it. The message does not
                quote the expression, because it may reveal the form of secrets.
        """
        options = re2.Options()
        options.log_errors = False
        options.never_capture = not captures
        try:
            self._regex: Any = re2.compile(expression, options)
        except re2.error:
            raise ValueError("not a regular expression that RE2 supports") from None

    def is_in(self, text: str | bytes) -> bool:
        """Return whether the expression matches anywhere in a text or in UTF-8 bytes."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return self._regex.search(data) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each match, in order.

        If the expression has groups, yield the start and end of the first group instead. Lone
        surrogates never match.
        """
        data = text.encode("utf-8", "surrogatepass")
        group = min(self._regex.groups, 1)
        if len(data) == len(text):
            for match in self._regex.finditer(data):
                yield match.span(group)
            return
        byte = character = 0
        for match in self._regex.finditer(data):
            positions = []
            for position in match.span(group):
                character += len(data[byte:position].decode("utf-8", "surrogatepass"))
                byte = position
                positions.append(character)
            yield positions[0], positions[1]
