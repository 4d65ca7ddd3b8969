r"""Regular expressions that are matched in linear time, whatever the expression and the text.

The engine is RE2 (https://github.com/google/re2/wiki/Syntax). It has no look-around and no
backreferences, and `\d`, `\w`, `\s` and `\b` mean ASCII characters.
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
            expression: In RE2's syntax.
            captures: Whether `(…)` captures. If not, `spans` yields whole matches.

        Raises:
            ValueError: The expression is not valid, or RE2 does not support it. The message does
                not repeat the expression, which may show what secrets look like.
        """
        options = re2.Options()
        options.log_errors = False
        options.never_capture = not captures
        try:
            self._regex: Any = re2.compile(expression, options)
        except re2.error:
            raise ValueError("not a regular expression of RE2") from None

    def is_in(self, text: str | bytes) -> bool:
        """Return whether the expression matches anywhere in a text, or in bytes that hold texts."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return self._regex.search(data) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where the matches are, in order: the first group if there is one, or the whole.

        Lone surrogates match nothing.
        """
        data = text.encode("utf-8", "surrogatepass")
        group = min(self._regex.groups, 1)
        if len(data) == len(text):
            for found in self._regex.finditer(data):
                yield found.span(group)
            return
        byte = character = 0
        for found in self._regex.finditer(data):
            places = []
            for place in found.span(group):
                character += len(data[byte:place].decode("utf-8", "surrogatepass"))
                byte = place
                places.append(character)
            yield places[0], places[1]
