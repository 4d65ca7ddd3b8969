"""Edits of a text: which parts are replaced by which masks."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tracer.records.masks import A_MASK, MASK
from tracer.redaction.rules import TEXT


class Edit(NamedTuple):
    """A part of a text, and the mask that replaces it."""

    start: int
    end: int
    replacement: str


def apply(text: str, edits: Sequence[Edit]) -> str:
    """Return `text` with all edits applied. The edits must be sorted and must not overlap."""
    parts: list[str] = []
    position = 0
    for start, end, replacement in edits:
        parts += (text[position:start], replacement)
        position = end
    parts.append(text[position:])
    return "".join(parts)


def united(text: str, edits: Iterable[Edit]) -> list[Edit]:
    """Return edits sorted by position, with overlapping edits merged.

    Masks that `text` already contains stay whole: an edit inside one is dropped, and an edit that
    overlaps one is extended to cover it.
    """
    found = A_MASK.finditer(text) if MASK in text else ()
    masks = [Edit(*match.span(), match[0]) for match in found]
    result: list[Edit] = []
    for edit in sorted([*masks, *edits], key=lambda each: (each.start, -each.end)):
        if result and edit.start < result[-1].end:
            last = result[-1]
            result[-1] = last._replace(end=max(last.end, edit.end))
        else:
            result.append(edit)
    return [edit for edit in result if text[edit.start : edit.end] != edit.replacement]


# --- Views: texts whose escapes are decoded, with the positions of their characters.


class View:
    """A text with its escapes decoded. It maps positions back to the original text."""

    def __init__(
        self, raw: str, escape: re.Pattern[str], decoded: Callable[[re.Match[str]], str | None]
    ) -> None:
        """Decode a text.

        Args:
            raw: The original text.
            escape: Matches each escape.
            decoded: Returns the text that an escape stands for; None: this is no escape.
        """
        self.removed: list[int] = []
        """Positions at which an escape stands for nothing."""
        self._positions: list[int] = []
        self.escapes: list[tuple[int, int, int]] = []
        """The start and end of each escape in the original text, and the length of its text."""
        parts: list[str] = []
        size = position = 0
        for match in escape.finditer(raw) if any(each in raw for each in _ESCAPES) else ():
            new = decoded(match)
            if new is None:
                continue
            start, end = match.span()
            parts += (raw[position:start], new)
            size += start - position
            position = end
            self._positions.append(size)
            self.escapes.append((start, end, len(new)))
            if not new:
                self.removed.append(size)
            size += len(new)
        parts.append(raw[position:])
        self.text = "".join(parts)

    def original(self, edit: Edit) -> Edit:
        """Return an edit of this view as an edit of the original text."""
        start, end = self.span_of(edit.start)[0], self.span_of(edit.end - 1)[1]
        return Edit(start, end, edit.replacement)

    def span_of(self, position: int) -> tuple[int, int]:
        """Return where the character at a position is in the original text."""
        at = bisect_right(self._positions, position) - 1
        start, end, length = self.escapes[at] if at >= 0 else (0, 0, 0)
        after = position - (self._positions[at] if at >= 0 else 0) - length
        return (start, end) if after < 0 else (end + after, end + after + 1)


_ESCAPES = "\\%&\x07\x1b\x9b"
_ENTITIES = {"quot": '"', "#34": '"', "amp": "&", "lt": "<", "gt": ">"}


def _decoded(match: re.Match[str]) -> str | None:
    kind = match.lastgroup
    if kind is None:
        return None
    if kind in ("unicode", "byte", "percent"):
        return chr(int(match[kind], 16))
    decoded = {"removed": "", "written": "", "line": "\n", "space": " ", "slash": "/"}
    return decoded[kind] if kind in decoded else _ENTITIES.get(match[kind], "'")


def readable(text: str) -> View:
    """Return the view of a text without escapes of terminals, JSON, URLs and XML.

    Escaped quotes and backslashes stay, because they show which string a quote ends. In URLs, only
    letters and digits stay escaped, which nobody escapes.
    """
    return View(text, TEXT["escape"], _decoded)


def within_json_string(raw: str, edits: list[Edit], offset: int) -> list[Edit]:
    """Return edits of a JSON string's value as edits of the text that contains the string.

    Args:
        raw: The string as JSON, without its quotes.
        edits: The edits of its value.
        offset: The position of `raw` in the text.
    """
    if not edits:
        return edits
    view = View(raw, TEXT["json_escape"], lambda match: "x")  # only the number of characters counts
    return [
        Edit(start + offset, end + offset, json.dumps(text, ensure_ascii=False)[1:-1])
        for start, end, text in map(view.original, edits)
    ]
