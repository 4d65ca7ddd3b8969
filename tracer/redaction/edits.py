"""Edits: which part of a text is replaced by which mask."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tracer.records.masks import A_MASK, MASK

MAX_WORK = 300_000
"""The largest amount of work on one text. Each possible secret that is examined counts 1. Each mask
counts `MASK_WORK`."""

MASK_WORK = 30

MAX_SECRETS = MAX_WORK // MASK_WORK
"""The largest number of secrets that are masked in one text. A text with more secrets is replaced
as a whole."""


class TooMuchWork(Exception):
    """A text contains more secrets, or possible secrets, than can be examined."""


class WorkCounter:
    """Counts the work on one text, to limit it."""

    def __init__(self) -> None:
        self.done = 0

    def add(self, work: int = 1) -> None:
        """Add to the count.

        Raises:
            TooMuchWork: The count exceeds `MAX_WORK`.
        """
        self.done += work
        if self.done > MAX_WORK:
            raise TooMuchWork


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

    Masks that `text` already contains stay whole. An edit inside such a mask is dropped. An edit
    that overlaps such a mask is extended to cover it.
    """
    masks = [match.span() for match in A_MASK.finditer(text)] if MASK in text else []
    result: list[Edit] = []
    next_mask = 0
    for edit in sorted(edits, key=lambda each: each[:2]):
        while next_mask < len(masks) and masks[next_mask][1] <= edit.start:
            next_mask += 1
        covered = next_mask
        while covered < len(masks) and masks[covered][0] < edit.end:
            start, end = masks[covered]
            covered += 1
            if start <= edit.start and edit.end <= end:
                break
            edit = Edit(min(start, edit.start), max(end, edit.end), edit.replacement)
        else:
            if result and edit.start < result[-1].end:
                last = result[-1]
                result[-1] = last._replace(end=max(last.end, edit.end))
            else:
                result.append(edit)
    return result


_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)"
)


def within_string(raw: str, edits: Sequence[Edit], offset: int) -> list[Edit]:
    r"""Convert edits of a JSON string's value to edits of the text that contains the string.

    The positions differ if the string contains escapes such as `\n`.

    Args:
        raw: The string as written in the text, without its quotes.
        edits: Edits of the string's value, sorted.
        offset: The position of `raw` in the text.
    """
    shift = offset
    escapes = _ESCAPE.finditer(raw)
    escape = next(escapes, None)
    result: list[Edit] = []
    for edit in edits:
        positions = []
        for position in (edit.start, edit.end):
            # An escape of any length is one character of the value.
            while escape is not None and escape.start() + offset - shift < position:
                shift += len(escape[0]) - 1
                escape = next(escapes, None)
            positions.append(position + shift)
        replacement = json.dumps(edit.replacement, ensure_ascii=False)[1:-1]
        result.append(Edit(positions[0], positions[1], replacement))
    return result
