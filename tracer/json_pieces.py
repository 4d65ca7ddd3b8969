"""What may be replaced of a part of a JSON text, so that it stays JSON."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

# One regular expression, which takes linear time: nothing in it is tried twice.
_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*+(?P<end>"?))"""
    r"""|(?P<value>(?:-?[0-9][0-9.eE+-]*+|true|false|null)(?![^\s"{}\[\]:,]))"""
    r"""|[^\s"{}\[\]:,]++""",
    re.DOTALL,
)
_STRUCTURE = re.compile(r"[{}\[\]:,]")
_ESCAPE_LENGTH = len("\\u0000")


class Piece(NamedTuple):
    """A part of a text, and whether what takes its place has to be in quotes."""

    start: int
    end: int
    is_bare: bool = False


class JsonPieces:
    """Finds the pieces of parts of one text; asked from the front to the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        is_json = text[:1] in ("{", "[")
        self._tokens = _TOKEN.finditer(text) if is_json else iter(())
        self._token = next(self._tokens, None)

    def of(self, start: int, end: int) -> list[Piece]:
        """Return what is to be replaced: what is within strings, and numbers as a whole.

        Where there is no JSON, such as in a line of a log that begins with a bracket, it is all.
        """
        tokens = []
        while self._token is not None and self._token.start() < end:
            if self._token.end() > start:
                tokens.append(self._token)
            if self._token.end() > end:
                break  # the next part may be in it, too
            self._token = next(self._tokens, None)
        if not tokens or not self._are_json(tokens):
            return [Piece(start, end)]
        return [piece for each in tokens if (piece := self._piece(each, start, end))]

    def _are_json(self, tokens: list[re.Match[str]]) -> bool:
        if not all(each.lastgroup for each in tokens):
            return False
        return all(
            _STRUCTURE.search(self._text, one.end(), next_one.start())
            for one, next_one in pairwise(tokens)
        )

    def _piece(self, token: re.Match[str], start: int, end: int) -> Piece | None:
        if token.lastgroup == "value":
            return Piece(*token.span(), is_bare=True)
        first, last = token.start() + 1, token.start("end")
        if start > first:
            start = self._escape_around(start)[0]
        if end < last:
            end = self._escape_around(end)[1]
        start, end = max(start, first), min(end, last)
        return Piece(start, end) if start < end else None

    def _escape_around(self, place: int) -> tuple[int, int]:
        """Return where the escape begins and ends that a place is within; else twice the place."""
        slash = before = self._text.rfind("\\", max(0, place - _ESCAPE_LENGTH + 1), place)
        while before >= 0 and self._text[before] == "\\":
            before -= 1
        if (slash - before) % 2 == 1:
            end = slash + (_ESCAPE_LENGTH if self._text.startswith("u", slash + 1) else 2)
            if end > place:
                return slash, end
        return place, place
