"""Masks, which replace secrets in a text, and payloads that a project does not store."""

from __future__ import annotations

import re

MASK = "[masked: "
"""The beginning of every mask."""

A_MASK = re.compile(r"\[masked: [a-z0-9_]{1,40}\]")

NOT_KEPT = r"\[masked: (?:payload|rest) of ([0-9]{1,15}) bytes\]\Z"
"""The size mark at the end of an incomplete text, as a regular expression for Python and
Postgres."""

MARK_CHARACTERS = 60
"""The largest length of a size mark."""

END_OF_MARK = " bytes]"

_NOT_KEPT = re.compile(NOT_KEPT)


def mask(rule: str) -> str:
    """Return the mask of a secret that `rule` found."""
    return f"{MASK}{rule}]"


def payload_mark(size: int) -> str:
    """Return the mask that replaces a payload of `size` bytes."""
    return f"[masked: payload of {size} bytes]"


def not_kept(text: str) -> re.Match[str] | None:
    """Match the mark of the original size, which ends a text that was stored only in part.

    Return None if the text is complete.
    """
    return _NOT_KEPT.search(text[-MARK_CHARACTERS:]) if text.endswith(END_OF_MARK) else None
